"""Rectified flow with a noise scale (ELF 2605.10938, section 3; scale 1: Rectified Flow 2209.03003)."""

import math

import torch
from torch import Tensor

from celeris.noise.fixed import FixedSchedule
from celeris.typing import Gamma


class RectifiedFlowSchedule(FixedSchedule):
    """z_τ = τ·x0 + (1 − τ)·scale·eps; the paper's time τ is 1 at data, so it runs against t.

    Dividing z_τ by √(τ² + scale²·(1 − τ)²) gives this package's z, at gamma = 2·ln(scale·(1 − τ)/τ).

    Args:
        gamma_min, gamma_max: levels at which the path is cut; the paper's own runs from ∞ to −∞.
        scale: standard deviation of the noise, in units of the data's (ELF: 2).
    """

    def __init__(self, gamma_min: float, gamma_max: float, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = scale
        self.between(gamma_min, gamma_max)

    def gamma_of(self, time: Tensor) -> Gamma:
        return 2 * (math.log(self.scale) - torch.logit(time))

    def time_of(self, gamma: Gamma) -> Tensor:
        return torch.sigmoid(math.log(self.scale) - 0.5 * gamma)

    def slope_of(self, time: Tensor) -> Tensor:
        return -2 / (time * (1 - time))
