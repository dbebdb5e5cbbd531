"""What a network may predict, and the one table that turns each prediction into every other, at a given (z, gamma).

All rows follow from z = alpha·x0 + sigma·eps and alpha² + sigma² = 1. The factors are written with softplus, so none
cancels, and none overflows in float32 for |gamma| < 170; half-precision input is taken to float32.

    from x0    eps = (z − alpha·x0)/sigma       v = (alpha·z − x0)/sigma
    from eps   x0 = (z − sigma·eps)/alpha
    from v     x0 = alpha·z − sigma·v           (v = alpha·eps − sigma·x0, Salimans & Ho 2202.00512, section 4)

Near the data (gamma → −∞) eps and v magnify an error of x0 by 1/sigma, near the noise x0 magnifies one of eps by
sigma/alpha: that is the nature of the parameters and no formula avoids it.

Shapes: z, x0, eps, v are (…, D); gamma is (…) or broadcasts to it.
"""

from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.noise.process import alpha_sigma
from celeris.typing import Gamma, Latent


@runtime_checkable
class Prediction(Protocol):
    """The meaning of a network's output (…, D)."""

    def to_x0(self, out: Latent, z: Latent, gamma: Gamma) -> Latent:
        """The clean point that an output stands for."""

    def from_x0(self, x0: Latent, z: Latent, gamma: Gamma) -> Latent:
        """The output that stands for a clean point: the target of a regression, when x0 is the truth."""


class X0:
    """The output is the clean point."""

    def to_x0(self, out: Latent, z: Latent, gamma: Gamma) -> Latent:
        return out

    def from_x0(self, x0: Latent, z: Latent, gamma: Gamma) -> Latent:
        return x0


class Eps:
    """The output is the noise (DDPM, 2006.11239, eq. 11)."""

    def to_x0(self, out: Latent, z: Latent, gamma: Gamma) -> Latent:
        return x0_from_eps(out, z, gamma)

    def from_x0(self, x0: Latent, z: Latent, gamma: Gamma) -> Latent:
        return eps_from_x0(x0, z, gamma)


class V:
    """The output is v = alpha·eps − sigma·x0 (2202.00512, section 4)."""

    def to_x0(self, out: Latent, z: Latent, gamma: Gamma) -> Latent:
        return x0_from_v(out, z, gamma)

    def from_x0(self, x0: Latent, z: Latent, gamma: Gamma) -> Latent:
        return v_from_x0(x0, z, gamma)


def eps_from_x0(x0: Latent, z: Latent, gamma: Gamma) -> Latent:
    """(z − alpha·x0)/sigma."""
    return _one_over_sigma(gamma) * z - _ratio(-gamma) * x0


def x0_from_eps(eps: Latent, z: Latent, gamma: Gamma) -> Latent:
    """(z − sigma·eps)/alpha."""
    return _one_over_sigma(-gamma) * z - _ratio(gamma) * eps  # alpha(gamma) = sigma(−gamma)


def v_from_x0(x0: Latent, z: Latent, gamma: Gamma) -> Latent:
    """alpha·eps − sigma·x0 = (alpha·z − x0)/sigma."""
    return _ratio(-gamma) * z - _one_over_sigma(gamma) * x0


def x0_from_v(v: Latent, z: Latent, gamma: Gamma) -> Latent:
    """alpha·z − sigma·v."""
    alpha, sigma = alpha_sigma(gamma)
    return alpha[..., None] * z - sigma[..., None] * v


def score_from_x0(x0: Latent, z: Latent, gamma: Gamma) -> Latent:
    """∇_z log q(z | x0) = (alpha·x0 − z)/sigma² = −eps/sigma; with E[x0|z] in place of x0, the score of q(z)."""
    return -_one_over_sigma(gamma) * eps_from_x0(x0, z, gamma)


def velocity_from_x0(x0: Latent, z: Latent, gamma: Gamma) -> Latent:
    """dz/dgamma of the probability-flow ODE: ½·alpha·sigma·v = ½·alpha·(alpha·z − x0), free of any division.

    From dalpha/dgamma = −½·alpha·sigma² and dsigma/dgamma = ½·sigma·alpha² (Song et al. 2011.13456, eq. 13, with
    gamma as the time).
    """
    alpha = alpha_sigma(gamma).alpha[..., None]
    return 0.5 * alpha * (alpha * z - x0)


def _one_over_sigma(gamma: Gamma) -> Tensor:
    """1/sigma, (…, 1)."""
    return torch.exp(0.5 * F.softplus(-_wide(gamma)))[..., None]


def _ratio(gamma: Gamma) -> Tensor:
    """sigma/alpha, (…, 1)."""
    return torch.exp(0.5 * _wide(gamma))[..., None]


def _wide(gamma: Gamma) -> Gamma:
    return gamma if gamma.dtype == torch.float64 else gamma.float()
