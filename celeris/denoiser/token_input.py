"""How tokens enter the trunk: a known one by itself, an uncertain one as the mean over what it may be."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from celeris.typing import Ids, Table


class TableInput(nn.Linear):
    """A linear map of the D-wide embedding: D·H weights, for large vocabularies.

    Args:
        dim: D.
        width: H.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__(dim, width, bias=False)

    def known(self, ids: Ids, table: Table) -> Tensor:
        """(*shape) → (*shape, H)."""
        return self(F.embedding(ids, table))

    def mean(self, probabilities: Tensor, table: Table) -> Tensor:
        """(*shape, V) → (*shape, H)."""
        with torch.autocast(probabilities.device.type, enabled=False):
            mean = probabilities.float() @ table.float()
        return self(mean.to(table.dtype))


class TokenInput(nn.Module):
    """An H-wide vector of each token, of its own: V·H weights.

    A mixture of V tokens has V − 1 degrees of freedom. Its mean in D < V dimensions no longer says which tokens it was
    made of; its mean here does as far as H reaches, and the context stream reads tokens as any language model does.

    Args:
        vocab_size: V.
        width: H.
    """

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        # The variance that a linear map of a row of norm √D has at its default initialisation, ⅓.
        self.weight = nn.Parameter(torch.randn(vocab_size, width) / 3**0.5)

    def known(self, ids: Ids, table: Table) -> Tensor:
        """(*shape) → (*shape, H), in the precision of the linear layers that follow."""
        vectors = F.embedding(ids, self.weight)
        device = vectors.device.type
        return vectors.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else vectors

    def mean(self, probabilities: Tensor, table: Table) -> Tensor:
        """(*shape, V) → (*shape, H)."""
        return probabilities.to(self.weight.dtype) @ self.weight
