"""A table that training does not move."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.embedding.base import EmbeddingTable
from celeris.errors import CelerisError
from celeris.streams import generator
from celeris.typing import Table


class FrozenEmbedding(EmbeddingTable):
    """Rows of norm √D that stay as they are: random directions, until `fill` brings others.

    The table is a buffer, so it is saved with the weights: a checkpoint needs nothing else to be loaded.

    Args:
        vocab_size: V.
        dim: D.
        seed: of the random directions, stream "embedding".
    """

    def __init__(self, vocab_size: int, dim: int, seed: int = 0) -> None:
        super().__init__(vocab_size, dim)
        rows = torch.randn(vocab_size, dim, generator=generator(seed, "embedding"))
        self.register_buffer("weight", _normalised(rows))

    @property
    def table(self) -> Table:
        """(V, D) the stored rows, float32."""
        return self.weight.float()

    @torch.no_grad()
    def fill(self, rows: Tensor) -> None:
        """Take the directions of `rows` (V, D).

        Raises:
            CelerisError: another shape, a row without direction (zero or not finite), or two equal rows.
        """
        if rows.shape != self.weight.shape:
            raise CelerisError(
                f"The table has shape {tuple(rows.shape)} and the embedding {tuple(self.weight.shape)}; "
                "make it for this vocabulary and width."
            )
        bad = ~(rows.isfinite().all(-1) & (rows.norm(dim=-1) > 0))
        if bad.any():
            raise CelerisError(f"Row {int(bad.nonzero()[0])} of the table is zero or not finite; give it a direction.")
        unit = _normalised(rows)
        if len(unit.unique(dim=0)) < len(unit):
            raise CelerisError("Two tokens have the same row in the table and could never be told apart; change one.")
        self.weight.copy_(unit)


def _normalised(rows: Tensor) -> Tensor:
    """Float32 rows of norm √D."""
    return F.normalize(rows.float(), dim=-1) * math.sqrt(rows.shape[-1])
