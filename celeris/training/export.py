"""The averaged weights as a folder anybody can load: safetensors, config.json, tokenizer.json."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from celeris.training.assembled import assembled
from celeris.training.module import TrainingModule


def export(module: TrainingModule, folder: str | Path, info: dict[str, Any] | None = None) -> Path:
    """Write the EMA weights (the raw ones before its first update) to `folder`, replacing what was there.

    An export is always plain: low-rank changes are added to the weights they change, and shards are gathered on the
    first rank, one tensor at a time. All ranks of sharded weights must call it; of others, the first one.

    Args:
        module: trained.
        folder: run/export.
        info: plain JSON values to keep with the weights (data description, experiment name, …).

    Returns:
        `folder`.
    """
    folder = Path(folder)
    part, old = folder.with_name(f".{folder.name}.part"), folder.with_name(f".{folder.name}.old")
    what = {
        **(info or {}),
        "step": module.global_step,
        "seed": module.seed,
        "weights": "raw" if module.ema.average is None else "ema",
        "ema_decay": module.ema.decay,
        "ema_updates": module.ema.num_updates,
    }
    with module.averaged():
        model = assembled(module.model, torch.device("cpu"))
        if model is None:
            return folder
        for leftover in (part, old):
            shutil.rmtree(leftover, ignore_errors=True)
        model.save_pretrained(part, what)
    if folder.exists():
        os.replace(folder, old)
    os.replace(part, folder)
    shutil.rmtree(old, ignore_errors=True)
    return folder
