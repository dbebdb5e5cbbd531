"""The rho grid of EDM (Karras et al. 2206.00364, eq. 5) as a schedule."""

import math

from torch import Tensor

from celeris.errors import CelerisError
from celeris.noise.fixed import FixedSchedule
from celeris.typing import Gamma


class KarrasSchedule(FixedSchedule):
    """σ(τ) = (σ_max^(1/ρ) + τ·(σ_min^(1/ρ) − σ_max^(1/ρ)))^ρ, gamma = 2·ln(σ/σ_data).

    The paper's time is its step i/(N − 1), which is 0 at the noisiest level: τ = 1 − t. Its z = x + σ·eps has data of
    standard deviation σ_data; dividing by √(σ_data² + σ²) gives this package's z, whose data has unit variance.

    Args:
        sigma_min, sigma_max: ends of the path, in the units of sigma_data.
        rho: 7 spends more steps at little noise than a uniform log-SNR; ρ → ∞ is uniform.
        sigma_data: standard deviation of the paper's data.
    """

    def __init__(
        self, sigma_min: float = 0.002, sigma_max: float = 80.0, rho: float = 7.0, sigma_data: float = 0.5
    ) -> None:
        super().__init__()
        if not 0 < sigma_min < sigma_max or not rho > 0 or not sigma_data > 0:
            raise CelerisError(
                f"KarrasSchedule(sigma_min={sigma_min}, sigma_max={sigma_max}, rho={rho}, sigma_data={sigma_data}): "
                "all must be positive and sigma_min the smaller; the paper has 0.002, 80, 7, 0.5."
            )
        self.rho, self.sigma_data = rho, sigma_data
        self.noisy, self.clean = sigma_max ** (1 / rho), sigma_min ** (1 / rho)
        self.between(2 * math.log(sigma_min / sigma_data), 2 * math.log(sigma_max / sigma_data))

    def _root(self, time: Tensor) -> Tensor:
        return self.noisy + time * (self.clean - self.noisy)

    def gamma_of(self, time: Tensor) -> Gamma:
        return 2 * (self.rho * self._root(time).log() - math.log(self.sigma_data))

    def time_of(self, gamma: Gamma) -> Tensor:
        root = ((0.5 * gamma + math.log(self.sigma_data)) / self.rho).exp()
        return (root - self.noisy) / (self.clean - self.noisy)

    def slope_of(self, time: Tensor) -> Tensor:
        return 2 * self.rho * (self.clean - self.noisy) / self._root(time)
