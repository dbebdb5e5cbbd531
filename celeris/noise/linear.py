"""Linear log-SNR: every level for the same time (the untrained schedule of VDM 2107.00630, appendix H)."""

import torch
from torch import Tensor

from celeris.noise.fixed import FixedSchedule
from celeris.typing import Gamma


class LinearSchedule(FixedSchedule):
    """gamma(t) = gamma_min + (gamma_max − gamma_min)·t; the paper's time is gamma itself.

    Args:
        gamma_min, gamma_max: ends of the path.
    """

    def __init__(self, gamma_min: float, gamma_max: float) -> None:
        super().__init__()
        self.between(gamma_min, gamma_max)

    def gamma_of(self, time: Tensor) -> Gamma:
        return time

    def time_of(self, gamma: Gamma) -> Tensor:
        return gamma

    def slope_of(self, time: Tensor) -> Tensor:
        return torch.ones_like(time)
