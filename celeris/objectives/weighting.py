"""How much an error of x0_hat counts at each noise level.

A weighting is w(gamma, slope), the factor of ‖x0 − x0_hat‖² for schedule times drawn uniformly; `slope` is
dgamma/dt. One that is written for a density of levels (the bound, the sigmoid) carries the slope, so that its integral
over gamma is the same under every schedule; the others weight whatever levels the schedule visits, as their papers do.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.typing import Gamma


@runtime_checkable
class Weighting(Protocol):
    """gamma (*shape), dgamma/dt (*shape) → weight (*shape)."""

    def __call__(self, gamma: Gamma, slope: Tensor) -> Tensor: ...


class Unit:
    """One everywhere: the simple x0 loss (Diffusion-LM 2205.14217, section 4.2)."""

    def __call__(self, gamma: Gamma, slope: Tensor) -> Tensor:
        return torch.ones_like(gamma)


class ELBO:
    """½·exp(−gamma)·slope: summed over the width of x0, the diffusion term of the bound (VDM 2107.00630, eq. 17)."""

    def __call__(self, gamma: Gamma, slope: Tensor) -> Tensor:
        return 0.5 * torch.exp(-gamma) * slope


class MinSNR:
    """min(SNR, cap), which keeps the low-noise levels from ruling the loss (2303.09556, section 3.4, x0 prediction).

    Args:
        gamma_cap: the paper's γ, the largest weight.
    """

    def __init__(self, gamma_cap: float = 5.0) -> None:
        self.gamma_cap = _positive("gamma_cap", gamma_cap)

    def __call__(self, gamma: Gamma, slope: Tensor) -> Tensor:
        return torch.exp(-gamma).clamp_max(self.gamma_cap)


class EDM:
    """(sigma² + sigma_data²)/(sigma·sigma_data)² with sigma² = exp(gamma) (EDM 2206.00364, table 1, λ(σ) = 1/c_out²).

    sigma is the noise on undamped data, z/alpha. For sigma_data = 1, that of tables of norm √D, the weighted error of
    x0_hat is the unweighted error of v.

    Args:
        sigma_data: standard deviation of a coordinate of x0.
    """

    def __init__(self, sigma_data: float = 1.0) -> None:
        self.sigma_data = _positive("sigma_data", sigma_data)

    def __call__(self, gamma: Gamma, slope: Tensor) -> Tensor:
        return torch.exp(-gamma) + self.sigma_data**-2


class Sigmoid:
    """The bound's weight times sigmoid(gamma + bias) (2303.00848, section 5; 2410.19324, section 3.1).

    In log-SNR λ = −gamma that is ½·|dλ/dt|·e^bias·sigmoid(λ − bias): fine detail, decided at low noise, counts less.

    Args:
        bias: log-SNR at which the weight is half of the bound's.
    """

    def __init__(self, bias: float = 0.0) -> None:
        self.bias = bias

    def __call__(self, gamma: Gamma, slope: Tensor) -> Tensor:
        return 0.5 * slope * torch.exp(-gamma) * torch.sigmoid(gamma + self.bias)


class Velocity:
    """1/max(1 − τ, floor)²: the squared error of a rectified flow's velocity (ELF 2605.10938, section 3).

    On z = τ·x0 + (1 − τ)·scale·eps the velocity (x0_hat − z)/(1 − τ) is off by (x0_hat − x0)/(1 − τ), and
    1/(1 − τ) = 1 + scale·√SNR.

    Args:
        scale: of the noise, as in the schedule.
        floor: smallest 1 − τ divided by.
    """

    def __init__(self, scale: float = 1.0, floor: float = 0.05) -> None:
        self.scale, self.floor = _positive("scale", scale), _positive("floor", floor)

    def __call__(self, gamma: Gamma, slope: Tensor) -> Tensor:
        return (1 / (1 + self.scale * torch.exp(-gamma / 2))).clamp_min(self.floor) ** -2


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise CelerisError(f"{name} is {value:g}; a weighting needs a positive one.")
    return float(value)
