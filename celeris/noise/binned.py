"""What the measured schedules share: running means on equal bins of gamma, and the inverse CDF they give."""

from abc import abstractmethod

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.noise.online import OnlineFit
from celeris.noise.schedule import Schedule
from celeris.typing import Gamma, Mask


class BinnedSchedule(Schedule, OnlineFit):
    """gamma(t) = F⁻¹(t), F piecewise linear on equal bins of gamma; a subclass says what F rises with.

    A little of the uniform distribution is mixed in, so that F is strictly increasing and every level keeps being
    visited.

    Args:
        gamma_min, gamma_max: ends of the path; both stay fixed.
        bins: pieces.
        uniform: share of the uniform distribution in F.
        rate: weight of one step in the running means.
    """

    seen: Tensor

    def __init__(self, gamma_min: float, gamma_max: float, bins: int, uniform: float, rate: float) -> None:
        super().__init__()
        if not gamma_min < gamma_max or bins < 1 or not 0 < uniform <= 1 or not 0 < rate <= 1:
            raise CelerisError(
                f"{type(self).__name__}(gamma_min={gamma_min}, gamma_max={gamma_max}, bins={bins}, uniform={uniform}, "
                f"rate={rate}) is out of range: gamma_min below gamma_max, at least one bin, and uniform and rate in "
                "(0, 1]."
            )
        self.gamma_min, self.gamma_max = float(gamma_min), float(gamma_max)
        self.bins, self.uniform, self.rate = bins, uniform, rate
        self.register_buffer("seen", torch.zeros(bins + 1))

    @abstractmethod
    def _rise(self) -> Tensor:
        """What F rises with, at the bins + 1 edges: float64, non-decreasing, of any scale."""

    @property
    def _edges(self) -> Tensor:
        return torch.linspace(
            self.gamma_min, self.gamma_max, self.bins + 1, dtype=torch.float64, device=self.seen.device
        )

    @property
    def _cdf(self) -> Tensor:
        rise = self._rise()
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

    @property
    @abstractmethod
    def _mean(self) -> Tensor:
        """The running means at the bins + 1 edges, a buffer."""

    @torch.no_grad()
    def _take_in(self, gamma: Gamma, value: Tensor, counted: Mask) -> None:
        """Observations of `value` at the levels `gamma`: (2, bins + 1) weights and weighted values of the edges.

        Each is shared by its two edges in proportion (linear binning); one that is not finite counts for nothing.
        """
        counted = counted & torch.isfinite(value)
        place = (gamma.flatten().float() - self.gamma_min) / (self.gamma_max - self.gamma_min) * self.bins
        left = place.floor().clamp(0, self.bins - 1)
        right = (place - left).clamp(0, 1)
        edges = torch.cat([left, left + 1]).long()
        shares = torch.cat([1 - right, right]).double() * counted.flatten().repeat(2)
        finite = torch.where(counted, value, 0.0).flatten().double()
        self.see(self.nothing().index_add_(1, edges, torch.stack([shares, shares * finite.repeat(2)])))

    def nothing(self) -> Tensor:
        return torch.zeros(2, self.bins + 1, dtype=torch.float64, device=self.seen.device)

    def learn(self, sums: Tensor) -> None:
        weight, total = sums
        # A bin's step grows with what it saw (relative to an even share), and its first visits count in full.
        amount = (weight * (self.bins + 1) / weight.sum().clamp_min(1e-12)).to(self.seen.dtype)
        self.seen += amount
        step = (amount / self.seen.clamp_min(1e-12)).clamp_min(self.rate * amount.clamp_max(1.0)).clamp_max(1.0)
        seen_mean = (total / weight.clamp_min(1e-12)).to(self._mean.dtype)
        self._mean.add_(torch.where(weight > 0, step, 0.0) * (seen_mean - self._mean))


def _interpolate(x: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """Piecewise-linear ys(xs) at x; xs strictly increasing."""
    right = torch.searchsorted(xs, x.contiguous()).clamp(1, len(xs) - 1)
    x0, x1, y0, y1 = xs[right - 1], xs[right], ys[right - 1], ys[right]
    return y0 + (y1 - y0) * ((x - x0) / (x1 - x0)).clamp(0, 1)
