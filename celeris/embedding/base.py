"""What an embedding table is to the other rooms."""

from abc import ABC, abstractmethod

import torch.nn.functional as F
from torch import Tensor, nn

from celeris.errors import CelerisError
from celeris.typing import Ids, Latent, Table


class EmbeddingTable(nn.Module, ABC):
    """ids → x0 through a (V, D) table.

    Attributes:
        dim: D.
        weight: (V, D), a parameter or, in a frozen table, a buffer; `table` is what it stands for.
        equal_norms: every row has norm √D. Only then does ‖e_v‖² cancel from the Bayes posterior, so that the evidence
            (alpha/sigma²)·<z, e_v> is exact; a model refuses evidence on other tables.
    """

    weight: Tensor
    equal_norms: bool = True

    def __init__(self, vocab_size: int, dim: int) -> None:
        super().__init__()
        if vocab_size < 1 or dim < 1:
            raise CelerisError(f"A table of {vocab_size} rows of width {dim} is empty; both must be at least 1.")
        self.dim = dim

    @property
    @abstractmethod
    def table(self) -> Table:
        """(V, D) rows as they are used, float32."""

    def forward(self, ids: Ids) -> Latent:
        """x0 of `ids`: (*shape) → (*shape, D)."""
        return F.embedding(ids, self.table)

    def check_evidence(self, used: bool) -> None:
        """Refuse a model that would use the evidence of z where it is not exact."""
        if used and not self.equal_norms:
            raise CelerisError(
                f"{type(self).__name__} has rows of unequal norms, for which the evidence of z is not exact; set "
                "model.posterior_input=false and head.evidence=false, or use a table with equal norms."
            )
