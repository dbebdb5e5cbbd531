"""What the means of a loss are taken over in a whole optimizer step, known before its first micro-batch is computed."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from celeris.batch import Batch
from celeris.language_model import LanguageModel


@torch.no_grad()
def step_means(objective: Any, model: LanguageModel, batches: Sequence[Batch], seed: int) -> dict[str, Tensor] | None:
    """The objective's counts in a step, by kind: their mean over the micro-batches of all ranks (`Batch.over`).

    A mean of means would weigh a token by how many others its micro-batch has. All ranks must call it together.

    Args:
        objective: its `counts(model, batch, seed)` gives the same kinds on all ranks, each (B,).
        batches: all micro-batches of this rank in the step, as many on each.

    Returns:
        Scalars on the model's device; None where the objective has no `counts`.
    """
    counts = getattr(objective, "counts", None)
    if counts is None:
        return None
    found: dict[str, Tensor] = {}
    for batch in batches:
        for kind, rows in counts(model, batch.to(model.device), seed).items():
            own = rows.sum().to(model.device, torch.float32)
            found[kind] = found[kind] + own if kind in found else own
    sums, ranks = torch.stack(list(found.values())), 1
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(sums)
        ranks = dist.get_world_size()
    return dict(zip(found, sums / (len(batches) * ranks), strict=True))
