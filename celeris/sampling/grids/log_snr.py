"""Even steps of the log-SNR."""

from torch import Tensor

from celeris.sampling.grids.base import LevelGrid
from celeris.typing import Gamma


class UniformLogSNR(LevelGrid):
    """gamma_i evenly spaced between the schedule's ends (DPM-Solver 2206.00927, section 3.4)."""

    def levels(self, down: Tensor, low: Gamma, high: Gamma) -> Gamma:
        return high + down * (low - high)
