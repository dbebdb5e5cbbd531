"""A learned table without a norm: what the first embedding diffusions had."""

import torch
from torch import nn

from celeris.embedding.base import EmbeddingTable
from celeris.streams import generator
from celeris.typing import Table


class FreeEmbedding(EmbeddingTable):
    """Learned table, used as it is (Diffusion-LM 2205.14217, section 4.1), standard normal at the start.

    Nothing fixes the signal-to-noise ratio here. A squared error on x0_hat pulls the rows together, where it is 0, and
    a cross-entropy pushes them apart without end, where noise no longer matters (Difformer 2212.09412, section 3.1).
    It is kept to reproduce that; the Bayes evidence does not hold for it, so a model must be built with
    posterior_input=False and a head without evidence.

    Args:
        vocab_size: V.
        dim: D.
        seed: of the initialisation, stream "embedding".
    """

    equal_norms = False

    def __init__(self, vocab_size: int, dim: int, seed: int = 0) -> None:
        super().__init__(vocab_size, dim)
        self.weight = nn.Parameter(torch.randn(vocab_size, dim, generator=generator(seed, "embedding")))

    @property
    def table(self) -> Table:
        """(V, D) the weights themselves, float32."""
        return self.weight.float()
