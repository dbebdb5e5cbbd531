"""Empirical loss-CDF schedule: time warping by the cross-entropy actually seen (CDCD, 2211.15089, section 4.2)."""

import torch
from torch import Tensor

from celeris.noise.schedule import Observed, Schedule
from celeris.typing import Gamma


class LossCDFSchedule(Schedule):
    """gamma(t) = F⁻¹(t), where F(gamma) ∝ loss(gamma) − loss(gamma_min), piecewise linear on equal bins of gamma.

    No shape is assumed. The loss curve is a running mean per bin edge; it is made non-decreasing, and a little of the
    uniform distribution is mixed in so that F is strictly increasing and every level keeps being visited.

    Args:
        gamma_min, gamma_max: ends of the path; both stay fixed.
        bins: pieces.
        uniform: share of the uniform distribution in F.
        rate: weight of one batch in the running means.
    """

    loss: Tensor
    seen: Tensor

    def __init__(
        self, gamma_min: float, gamma_max: float, bins: int = 48, uniform: float = 0.1, rate: float = 0.02
    ) -> None:
        super().__init__()
        self.gamma_min, self.gamma_max = float(gamma_min), float(gamma_max)
        self.bins, self.uniform, self.rate = bins, uniform, rate
        self.register_buffer("loss", torch.linspace(0, 1, bins + 1))
        self.register_buffer("seen", torch.zeros(bins + 1))

    @property
    def _edges(self) -> Tensor:
        return torch.linspace(
            self.gamma_min, self.gamma_max, self.bins + 1, dtype=torch.float64, device=self.loss.device
        )

    @property
    def _cdf(self) -> Tensor:
        rise = torch.cummax(self.loss.double(), 0).values
        rise = (rise - rise[0]) / (rise[-1] - rise[0]).clamp_min(1e-12)
        line = torch.linspace(0, 1, self.bins + 1, dtype=torch.float64, device=rise.device)
        cdf = (1 - self.uniform) * rise + self.uniform * line
        return cdf / cdf[-1]

    @torch.no_grad()
    def gamma(self, t: Tensor) -> Gamma:
        return _interpolate(t.double().clamp(0, 1), self._cdf, self._edges).to(t.dtype)

    @torch.no_grad()
    def t(self, gamma: Gamma) -> Tensor:
        return _interpolate(gamma.double().clamp(self.gamma_min, self.gamma_max), self._edges, self._cdf).to(
            gamma.dtype
        )

    @torch.no_grad()
    def slope(self, t: Tensor) -> Tensor:
        cdf = self._cdf
        piece = torch.searchsorted(cdf, t.double().contiguous(), right=True).clamp(1, self.bins) - 1
        width = (self.gamma_max - self.gamma_min) / self.bins
        return (width / (cdf[1:] - cdf[:-1]))[piece].to(t.dtype)

    @torch.no_grad()
    def fit(self, seen: Observed) -> None:
        """Each observation is shared by its two edges in proportion (linear binning); NaN counts for nothing."""
        gamma, loss = seen.gamma, seen.cross_entropy
        counted = seen.counted & torch.isfinite(loss)
        place = (gamma.flatten().float() - self.gamma_min) / (self.gamma_max - self.gamma_min) * self.bins
        left = place.floor().clamp(0, self.bins - 1)
        right = (place - left).clamp(0, 1)
        edges = torch.cat([left, left + 1]).long()
        shares = torch.cat([1 - right, right]) * counted.flatten().float().repeat(2)
        weight = torch.zeros_like(self.loss).index_add_(0, edges, shares)
        total = torch.zeros_like(self.loss).index_add_(0, edges, shares * loss.nan_to_num().flatten().float().repeat(2))
        # A bin's step grows with what it saw (relative to an even share), and its first visits count in full.
        amount = weight * (self.bins + 1) / weight.sum().clamp_min(1e-12)
        self.seen += amount
        step = (amount / self.seen.clamp_min(1e-12)).clamp_min(self.rate * amount.clamp_max(1.0)).clamp_max(1.0)
        self.loss += torch.where(weight > 0, step, 0.0) * (total / weight.clamp_min(1e-12) - self.loss)


def _interpolate(x: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """Piecewise-linear ys(xs) at x; xs strictly increasing."""
    right = torch.searchsorted(xs, x.contiguous()).clamp(1, len(xs) - 1)
    x0, x1, y0, y1 = xs[right - 1], xs[right], ys[right - 1], ys[right]
    return y0 + (y1 - y0) * ((x - x0) / (x1 - x0)).clamp(0, 1)
