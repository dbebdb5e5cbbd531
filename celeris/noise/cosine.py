"""Cosine schedule (Nichol & Dhariwal 2102.09672, eq. 17)."""

import math

import torch
from torch import Tensor

from celeris.noise.fixed import FixedSchedule
from celeris.typing import Gamma


class CosineSchedule(FixedSchedule):
    """alpha²(τ) = f(τ)/f(0), f(τ) = cos²(a), a = (τ + s)/(1 + s)·π/2; the paper's time τ is 0 at data.

    With a₀ = a(0): sigma²/alpha² = sin(a − a₀)·sin(a + a₀)/cos²(a), a form without cancellation.

    Args:
        gamma_min, gamma_max: levels at which the path is cut; the paper's own runs from −∞ to ∞.
        s: offset that keeps the first steps from being too small.
    """

    def __init__(self, gamma_min: float, gamma_max: float, s: float = 0.008) -> None:
        super().__init__()
        self.s = s
        self.first = s / (1 + s) * math.pi / 2
        self.between(gamma_min, gamma_max)

    def _angle(self, time: Tensor) -> Tensor:
        return (time + self.s) / (1 + self.s) * (math.pi / 2)

    def gamma_of(self, time: Tensor) -> Gamma:
        a = self._angle(time)
        return torch.log(torch.sin(a - self.first) * torch.sin(a + self.first)) - 2 * torch.log(torch.cos(a))

    def time_of(self, gamma: Gamma) -> Tensor:
        signal = torch.sigmoid(-gamma)
        sine = (torch.sigmoid(gamma) + signal * math.sin(self.first) ** 2).sqrt()
        angle = torch.atan2(sine, signal.sqrt() * math.cos(self.first))
        return angle * (2 / math.pi) * (1 + self.s) - self.s

    def slope_of(self, time: Tensor) -> Tensor:
        a = self._angle(time)
        per_angle = 1 / torch.tan(a - self.first) + 1 / torch.tan(a + self.first) + 2 * torch.tan(a)
        return per_angle * (math.pi / 2) / (1 + self.s)
