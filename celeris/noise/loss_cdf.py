"""Empirical loss-CDF schedule: time warping by the cross-entropy actually seen (CDCD, 2211.15089, section 4.2)."""

import torch
from torch import Tensor

from celeris.noise.binned import BinnedSchedule
from celeris.noise.schedule import Observed


class LossCDFSchedule(BinnedSchedule):
    """gamma(t) = F⁻¹(t), where F(gamma) ∝ loss(gamma) − loss(gamma_min), piecewise linear on equal bins of gamma.

    No shape is assumed. The loss curve is a running mean per bin edge; it is made non-decreasing, and a little of the
    uniform distribution is mixed in so that F is strictly increasing and every level keeps being visited.

    Args:
        gamma_min, gamma_max: ends of the path; both stay fixed.
        bins: pieces.
        uniform: share of the uniform distribution in F.
        rate: weight of one step in the running means.
    """

    loss: Tensor

    def __init__(
        self, gamma_min: float, gamma_max: float, bins: int = 48, uniform: float = 0.1, rate: float = 0.02
    ) -> None:
        super().__init__(gamma_min, gamma_max, bins, uniform, rate)
        self.register_buffer("loss", torch.linspace(0, 1, bins + 1))

    def _rise(self) -> Tensor:
        return torch.cummax(self.loss.double(), 0).values

    @property
    def _mean(self) -> Tensor:
        return self.loss

    def fit(self, seen: Observed) -> None:
        self._take_in(seen.gamma, seen.cross_entropy, seen.counted)
