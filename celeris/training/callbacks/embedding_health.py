"""Is the embedding table collapsing?"""

from typing import Any, NamedTuple

import torch
from rich import get_console

from celeris.training.callbacks.periodic import Periodic
from celeris.training.reporting import report_values
from celeris.typing import Table

COLLAPSED = 0.9


class Health(NamedTuple):
    """Attributes:
    mean_cosine: over all pairs of rows; near 0 for a random table, 1 when all rows coincide.
    nearest_distance: mean distance of a row to its nearest neighbour, divided by √(2D), the distance of orthogonal
        rows (LangFlow 2604.11748 reports about 1 for a healthy table and 0.058 for a collapsed one).
    """

    mean_cosine: float
    nearest_distance: float


def embedding_health(table: Table, rows: int = 2048) -> Health:
    """Health of a table whose rows have norm √D.

    Args:
        table: (V, D).
        rows: at most this many rows, evenly spread, look for their neighbour (among all V).
    """
    unit = torch.nn.functional.normalize(table.float(), dim=-1)
    size = unit.shape[0]
    mean_cosine = (unit.sum(0).square().sum() - size) / (size * (size - 1))
    picked = torch.linspace(0, size - 1, min(rows, size), device=unit.device).round().long()
    cosine = unit[picked] @ unit.T
    cosine[torch.arange(len(picked), device=unit.device), picked] = -2.0
    nearest = (1 - cosine.max(1).values).clamp_min(0).sqrt()  # |a − b|² = 2 − 2cos for unit rows
    return Health(float(mean_cosine), float(nearest.mean()))


class EmbeddingHealth(Periodic):
    """Logs embedding/mean_cosine and embedding/nearest_distance, and warns when rows run together."""

    def look(self, trainer: Any, model: Any) -> None:
        health = embedding_health(model.embedding.table)
        report_values(trainer, {f"embedding/{name}": value for name, value in health._asdict().items()})
        if health.mean_cosine > COLLAPSED:
            get_console().print(
                f"[yellow]warning:[/yellow] the embedding rows are collapsing (mean cosine {health.mean_cosine:.2f} at "
                f"step {trainer.global_step}); the denoising loss alone allows that, a cross-entropy does not."
            )
