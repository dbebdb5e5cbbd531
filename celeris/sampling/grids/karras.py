"""EDM's grid."""

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.sampling.grids.base import LevelGrid
from celeris.typing import Gamma


class Karras(LevelGrid):
    """s_i^(1/rho) evenly spaced, s = sigma/alpha = exp(gamma/2) (EDM 2206.00364, eq. 5).

    The paper ends at its smallest s and appends 0; here the schedule's end is finite and the last of the n steps
    reaches it.

    Args:
        rho: > 0; 1 is even in s, large values approach even steps of the log-SNR.
    """

    def __init__(self, rho: float = 7.0) -> None:
        if rho <= 0:
            raise CelerisError(f"rho is {rho:g}; it must be > 0 (EDM uses 7).")
        self.rho = rho

    def levels(self, down: Tensor, low: Gamma, high: Gamma) -> Gamma:
        first, last = (torch.exp(end / (2 * self.rho)) for end in (high, low))
        return 2 * self.rho * torch.log(first + down * (last - first))
