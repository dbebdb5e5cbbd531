"""One objective first, another one then."""

from torch import nn

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
        early = batch.index < self.rows
        if not model.training or not early.any():
            return self.then(model, batch, seed)
        if early.all():
            return self.first(model, batch, seed)
        share = float(early.float().mean())
        one, two = self.first(model, batch.rows(early), seed), self.then(model, batch.rows(~early), seed)
        loss = share * one.loss + (1 - share) * two.loss
        return ObjectiveOutput(loss, {**one.terms, **two.terms, "loss": loss.detach()})
