"""Square-root schedule (Diffusion-LM 2205.14217, appendix A)."""

import math

import torch
from torch import Tensor

from celeris.noise.fixed import FixedSchedule
from celeris.typing import Gamma


class SqrtSchedule(FixedSchedule):
    """alpha²(τ) = 1 − √(τ + s), so sigma²(τ) = √(τ + s); the paper's time τ is 0 at data.

    The path starts where the paper's does, at sigma² = √s, and is cut before alpha² reaches 0 at τ = 1 − s.

    Args:
        gamma_max: level at which the path is cut.
        s: sets the noise at τ = 0.
    """

    def __init__(self, gamma_max: float, s: float = 1e-4) -> None:
        super().__init__()
        self.s = s
        self.between(0.5 * math.log(s) - math.log1p(-math.sqrt(s)), gamma_max)

    def gamma_of(self, time: Tensor) -> Gamma:
        return torch.logit((time + self.s).sqrt())

    def time_of(self, gamma: Gamma) -> Tensor:
        return torch.sigmoid(gamma).square() - self.s

    def slope_of(self, time: Tensor) -> Tensor:
        variance = (time + self.s).sqrt()
        return 0.5 / (variance.square() * (1 - variance))
