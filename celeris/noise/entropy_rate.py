"""Entropy-rate schedule: levels drawn as often as information is gained there (CoBit 2605.07013, eq. 13)."""

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.noise.binned import BinnedSchedule
from celeris.noise.schedule import Observed


class EntropyRateSchedule(BinnedSchedule):
    """Density of gamma ∝ rate(gamma)^power, with rate the nats of the bound per unit of gamma that were seen.

    For an exact denoiser the rate is d entropy/d gamma (I-MMSE). The paper's density is over ln σ = gamma/2 and its
    rate is the squared error over σ², twice this one: the same density of gamma. A running mean per bin edge replaces
    the paper's tables that are refreshed every so often; the uniform share keeps every level visited.

    Args:
        gamma_min, gamma_max: ends of the path; both stay fixed.
        power: ½ is the paper's square-root target, 1 gains the same information in every step of a uniform grid.
        bins: pieces.
        uniform: share of the uniform distribution.
        rate: weight of one step in the running means.
    """

    nats_per_gamma: Tensor

    def __init__(
        self,
        gamma_min: float,
        gamma_max: float,
        power: float = 0.5,
        bins: int = 48,
        uniform: float = 0.1,
        rate: float = 0.02,
    ) -> None:
        super().__init__(gamma_min, gamma_max, bins, uniform, rate)
        if not power > 0:
            raise CelerisError(f"EntropyRateSchedule(power={power}): it must be positive; 0.5 is the paper's.")
        self.power = power
        self.register_buffer("nats_per_gamma", torch.zeros(bins + 1))

    def _rise(self) -> Tensor:
        density = self.nats_per_gamma.double().clamp_min(0) ** self.power
        visited = self.seen > 0
        typical = torch.where(visited, density, 0.0).sum() / visited.sum().clamp_min(1)
        density = torch.where(visited, density, torch.where(visited.any(), typical, 1.0))
        area = 0.5 * (density[1:] + density[:-1])
        return torch.cat([area.new_zeros(1), area.cumsum(0)])

    @property
    def _mean(self) -> Tensor:
        return self.nats_per_gamma

    def fit(self, seen: Observed) -> None:
        self._take_in(seen.gamma, seen.rate(), seen.counted)
