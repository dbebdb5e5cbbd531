"""The averaged weights as a folder anybody can load: safetensors, config.json, tokenizer.json."""

import os
import shutil
from pathlib import Path
from typing import Any

from celeris.training.low_rank import merged
from celeris.training.module import TrainingModule


def export(module: TrainingModule, folder: str | Path, info: dict[str, Any] | None = None) -> Path:
    """Write the EMA weights (the raw ones before its first update) to `folder`, replacing what was there.

    Low-rank changes are added to the weights they change: an export is always plain.

    Args:
        module: trained.
        folder: run/export.
        info: plain JSON values to keep with the weights (data description, experiment name, …).

    Returns:
        `folder`.
    """
    folder = Path(folder)
    part, old = folder.with_name(f".{folder.name}.part"), folder.with_name(f".{folder.name}.old")
    for leftover in (part, old):
        shutil.rmtree(leftover, ignore_errors=True)
    what = {
        **(info or {}),
        "step": module.global_step,
        "seed": module.seed,
        "weights": "raw" if module.ema.average is None else "ema",
        "ema_decay": module.ema.decay,
        "ema_updates": module.ema.num_updates,
    }
    with module.ema.swapped(module.model):
        merged(module.model).save_pretrained(part, what)
    if folder.exists():
        os.replace(folder, old)
    os.replace(part, folder)
    shutil.rmtree(old, ignore_errors=True)
    return folder
