"""Learned monotone schedule (VDM 2107.00630, appendix H; Plaid 2305.18619).

The end points and the path between them have different jobs. The bound depends on the end points, through its prior
and reconstruction terms and the range of its integral, so its own gradient trains them. It does not depend on the
path between them; there the schedule is free to make the bound's estimate as even as possible.
"""

import math

import torch
from torch import Tensor, nn

from celeris.errors import CelerisError
from celeris.noise.schedule import Observed, Schedule
from celeris.typing import Gamma

_FLOOR = 1e-3  # share of the straight line that cannot be unlearned: the slope stays positive
_STEEPEST = 200.0  # a sigmoid's rise takes at least about 1 % of the path
_KNOTS = 1025  # of the table a level is looked up in; the steepest sigmoid is smooth between two of them


class LearnedSchedule(Schedule):
    """gamma(t) = g0 + (g1 − g0)·m(t), m increasing from 0 to 1: a line and sigmoids with positive weights.

    `gamma` and `slope` are differentiable with respect to g0 and g1 only. `fit` trains m only, so that the density of
    gamma becomes ∝ √E[rate²]: the bound's integrand is then constant in t and its estimate has the least variance.

    Args:
        gamma_min, gamma_max: first values of g0 and g1.
        features: sigmoids.
        learn_ends: g0 and g1 are trained, for an objective that is the bound itself. Any other loss would simply be
            smaller at little noise, and drag the end points there.
    """

    def __init__(self, gamma_min: float, gamma_max: float, features: int = 32, learn_ends: bool = True) -> None:
        super().__init__()
        if not gamma_min < gamma_max or features < 1:
            raise CelerisError(
                f"LearnedSchedule(gamma_min={gamma_min}, gamma_max={gamma_max}, features={features}): gamma_min must "
                "be below gamma_max, with at least one feature."
            )
        self.ends = nn.Parameter(torch.tensor([float(gamma_min), float(gamma_max)]), requires_grad=learn_ends)
        centres = (torch.arange(features) + 0.5) / features
        self.centre = nn.Parameter(torch.logit(centres))
        self.steepness = nn.Parameter(torch.ones(features))  # on the scale of `centre`: from 1 to the steepest
        self.log_weight = nn.Parameter(torch.zeros(features + 1))  # the last one is the line's

    def _path(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """m(t) and m'(t) at t (…) in float64, differentiable."""
        centre = torch.sigmoid(self.centre.double())
        steepness = (math.log(_STEEPEST) * torch.sigmoid(self.steepness.double())).exp()
        weight = torch.softmax(self.log_weight.double(), 0)
        rise = torch.sigmoid(steepness * (t[..., None] - centre))
        low = torch.sigmoid(-steepness * centre)
        share = weight[:-1] / (torch.sigmoid(steepness * (1 - centre)) - low)
        m = weight[-1] * t + (share * (rise - low)).sum(-1)
        slope = weight[-1] + (share * steepness * rise * (1 - rise)).sum(-1)
        return _FLOOR * t + (1 - _FLOOR) * m, _FLOOR + (1 - _FLOOR) * slope

    @torch.no_grad()
    def _time(self, m: Tensor) -> Tensor:
        """Inverse of m (…), float64: looked up in a table, then three Newton steps inside the bracket."""
        knots = torch.linspace(0, 1, _KNOTS, dtype=torch.float64, device=m.device)
        table, _ = self._path(knots)
        right = torch.searchsorted(table, m.contiguous()).clamp(1, _KNOTS - 1)
        low, high = knots[right - 1], knots[right]
        t = low + (high - low) * ((m - table[right - 1]) / (table[right] - table[right - 1])).clamp(0, 1)
        for _ in range(3):
            now, slope = self._path(t)
            t = (t - (now - m) / slope).clamp(low, high)
        return t

    def gamma(self, t: Tensor) -> Gamma:
        with torch.no_grad():
            m, _ = self._path(t.double().clamp(0, 1))
        low, high = self.ends.double()
        return (low + (high - low) * m).to(t.dtype)

    @torch.no_grad()
    def t(self, gamma: Gamma) -> Tensor:
        low, high = self.ends.double()
        return self._time(((gamma.double() - low) / (high - low)).clamp(0, 1)).to(gamma.dtype)

    def slope(self, t: Tensor) -> Tensor:
        with torch.no_grad():
            _, slope = self._path(t.double().clamp(0, 1))
        low, high = self.ends.double()
        return ((high - low) * slope).to(t.dtype)

    def fit(self, seen: Observed) -> Tensor:
        """Squared relative spread of the bound's integrand rate·dgamma/dt over uniform t: 0 when it is constant.

        With p the density that drew the levels, E_{gamma ~ p}[rate²/(p_θ·p)] = ∫ rate²/p_θ is smallest at p_θ ∝ rate.
        Its gradient needs p_θ at a fixed gamma, whose time moves with θ: one Newton step from the known time is exact
        to first order. Levels are taken to be uniform in t.
        """
        rate = seen.rate().detach().double()
        counted = seen.counted & torch.isfinite(rate)
        share = counted / counted.sum().clamp_min(1)
        low, high = self.ends.detach().double()
        m = ((seen.gamma.detach().double() - low) / (high - low)).clamp(0, 1)
        time = self._time(m)
        now, speed = self._path(time)
        moved = time - (now - now.detach()) / speed.detach()
        _, slope = self._path(moved)
        integrand = torch.where(counted, rate, 0.0) * speed.detach()
        mean = (share * integrand).sum()
        spread = (share * integrand * torch.where(counted, rate, 0.0) * slope).sum()
        return torch.where(mean > 0, spread / mean.square().clamp_min(1e-30) - 1, 0.0 * spread).float()
