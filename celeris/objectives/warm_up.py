"""One objective first, another one then."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from celeris.batch import Batch
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.objectives.objective import ObjectiveOutput


class WarmUp(nn.Module):
    """`first` for the run's first `rows` samples, then `then`.

    A row's own number decides, not a count of calls: a resumed run, another micro-batch size or another number of ranks
    switches at the same sample. The batch that holds the switch is split, each part counting by its rows.
    Held-out rows (model.eval()) are numbered from zero again and always scored by `then`.

    Args:
        first, then: objectives.
        rows: samples trained on `first`, over all ranks (optimizer steps times global batch size).
    """

    def __init__(self, first: nn.Module, then: nn.Module, rows: int) -> None:
        super().__init__()
        if rows < 1:
            raise CelerisError(f"rows is {rows}; a warm-up needs at least 1 row (use objective `then` alone for none).")
        self.first, self.then, self.rows = first, then, rows

    def forward(self, model: DiffusionLM, batch: Batch, seed: int) -> ObjectiveOutput:
        if not model.training:
            return self.then(model, batch, seed)
        loss: Tensor | float = 0.0
        terms: dict[str, Tensor] = {}
        for name, objective, chosen in self._parts(batch):
            if not chosen.any():
                continue
            part = batch if chosen.all() else batch.rows(chosen)
            rows = chosen.float().mean() if batch.means is None else batch.means[f"{name}/rows"] / batch.means["rows"]
            out = objective(model, _own_means(part, name), seed)
            loss = loss + rows.to(out.loss) * out.loss
            terms |= out.terms
        assert isinstance(loss, Tensor)
        return ObjectiveOutput(loss, {**terms, "loss": loss.detach()})

    def counts(self, model: DiffusionLM, batch: Batch, seed: int) -> dict[str, Tensor]:
        found = {"rows": torch.ones_like(batch.index)}
        for name, objective, chosen in self._parts(batch):
            found[f"{name}/rows"] = chosen
            for kind, rows in objective.counts(model, batch, seed).items():
                found[f"{name}/{kind}"] = rows * chosen.to(rows.device)
        return found

    def _parts(self, batch: Batch) -> list[tuple[str, Any, Tensor]]:
        """Name, objective, and which rows are its own, (B,) bool."""
        early = batch.index < self.rows
        return [("first", self.first, early), ("then", self.then, ~early)]


def _own_means(batch: Batch, name: str) -> Batch:
    """The batch with the means of objective `name` alone."""
    if batch.means is None:
        return batch
    begin = f"{name}/"
    return replace(batch, means={k.removeprefix(begin): v for k, v in batch.means.items() if k.startswith(begin)})
