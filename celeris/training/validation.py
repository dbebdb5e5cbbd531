"""Held-out losses: token-weighted means, and the loss at fixed noise levels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from celeris.batch import Batch
from celeris.model import DiffusionLM
from celeris.noise import add_noise
from celeris.streams import generator, stream


class Mean(NamedTuple):
    """A mean (nats per token) and the number of tokens in it."""

    mean: Tensor
    tokens: Tensor


class HeldOut:
    """Means over all tokens of all batches of all ranks, each batch weighted by its tokens."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def add(self, values: dict[str, Tensor], count: Tensor) -> None:
        """Take in one batch: mean `values` over `count` tokens."""
        for name, value in values.items():
            pair = torch.stack([value.detach().double() * count, count.double()])
            pair = torch.where(count > 0, pair, 0.0)
            self._sums[name] = self._sums[name] + pair if name in self._sums else pair

    def means(self, strategy: Any) -> dict[str, float]:
        """Σ value·tokens / Σ tokens over all ranks, of every value that any rank has measured."""
        names = list(self._sums)
        if dist.is_available() and dist.is_initialized():  # a rank's rows may all lack a context, or be filling only
            found: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(found, names)
            names = list(dict.fromkeys(name for part in found for name in part))
        if not names:
            return {}
        nothing = torch.zeros(2, dtype=torch.float64, device=strategy.root_device)
        own = torch.stack([self._sums.get(name, nothing) for name in names])
        totals = strategy.reduce(own, reduce_op="sum").tolist()
        return {name: total / count for name, (total, count) in zip(names, totals, strict=True) if count > 0}


def real_rows(batch: Batch, num_rows: int | None) -> Batch:
    """Without the rows that only fill the last batch of several ranks (their counter lies past the end)."""
    if num_rows is None or bool((batch.index < num_rows).all()):
        return batch
    keep = batch.index < num_rows
    return batch.rows(keep)


class LossesByLevel:
    """Cross-entropy of the canvas at fixed noise levels, without self-conditioning.

    Under an adaptive schedule the training loss stays constant by construction; these do not. `first_pure` is the
    first token of each block at the noisiest level of the schedule: there the model has the context only, like an
    autoregressive model.

    Args:
        gammas: levels; those outside the schedule's range are left out.
        seed: of the run; the noise is that of its held-out rows.
    """

    def __init__(self, gammas: Sequence[float] = (-2.0, 0.0, 2.0, 4.0, 6.0), seed: int = 0) -> None:
        self.gammas, self.seed = tuple(gammas), stream(seed, "validation")

    @torch.no_grad()
    def __call__(self, model: DiffusionLM, batch: Batch) -> dict[str, Mean]:
        low, high = model.schedule.gamma(torch.tensor([0.0, 1.0], device=batch.canvas.device)).tolist()
        valid = batch.canvas != model.pad_id
        counted = valid & ~batch.given
        context = model.encode_context(batch.context, (batch.context != model.pad_id).sum(1))
        masks = batch.given if batch.infill else None, valid if batch.ragged else None
        x0 = model.embedding(batch.canvas)
        eps = torch.stack([self._noise(x0[row], int(key)) for row, key in enumerate(batch.index.tolist())])

        def losses(gamma: float) -> Tensor:
            levels = torch.full(batch.canvas.shape, gamma, device=x0.device)
            z = torch.where(batch.given[..., None], x0, add_noise(x0, levels, eps))
            logits = model.predict(z, levels, context, batch.start, None, *masks).logits
            return F.cross_entropy(logits.flatten(0, -2), batch.canvas.flatten(), reduction="none").view_as(levels)

        inside = [gamma for gamma in self.gammas if low <= gamma <= high]
        found = {f"loss_at_gamma/{gamma:g}": _mean(losses(gamma), counted) for gamma in inside}
        found["loss_first_pure"] = _mean(losses(high)[..., 0], counted[..., 0])
        return found

    def _noise(self, like: Tensor, key: int) -> Tensor:
        return torch.randn(like.shape, generator=generator(self.seed, "noise", key, like.device), device=like.device)


def _mean(losses: Tensor, counted: Tensor) -> Mean:
    count = counted.sum()
    return Mean((losses * counted).sum() / count.clamp_min(1), count)
