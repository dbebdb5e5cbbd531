"""The embedding table: rows of norm √D, so that every coordinate of x0 has unit variance."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from celeris.embedding.base import EmbeddingTable
from celeris.streams import generator
from celeris.typing import Table


class TokenEmbedding(EmbeddingTable):
    """Learned table whose rows are normalised to √D at every use (LangFlow 2604.11748).

    The norm is what fixes the signal-to-noise ratio: multiplying the raw weights by any number changes nothing, and
    ‖e_v‖² cancels from the Bayes posterior (`celeris.rounding.evidence`).

    Args:
        vocab_size: V.
        dim: D.
        seed: of the initialisation, stream "embedding".
    """

    def __init__(self, vocab_size: int, dim: int, seed: int = 0) -> None:
        super().__init__(vocab_size, dim)
        self.weight = nn.Parameter(torch.randn(vocab_size, dim, generator=generator(seed, "embedding")))

    @property
    def table(self) -> Table:
        """(V, D) normalised table, float32."""
        return F.normalize(self.weight.float(), dim=-1) * math.sqrt(self.dim)
