"""Explicit Euler for the probability-flow ODE."""

import torch
from torch import Tensor

from celeris.sampling.solvers.base import OneStep
from celeris.typing import Gamma, Latent


class Euler(OneStep):
    """One Euler step of dy/ds = (y − x̂0)/s in EDM's variables y = z/alpha, s = sigma/alpha (2206.00364, eq. 1).

    In these variables, and in rectified flow's, the path to a constant x̂0 is a straight line. Euler is then exact for
    it and the same map as DDIM(eta=0); written out here on its own so that a test can hold one against the other.
    """

    def move(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None) -> Latent:
        now, then = torch.exp(gamma_t.double()[..., None] / 2), torch.exp(gamma_s.double()[..., None] / 2)
        # alpha = 1/√(1 + s²); float64, because y is large where alpha is small
        y = z.double() * torch.sqrt(1 + now**2)
        slope = (y - x0_hat.double()) / now
        return ((y + (then - now) * slope) / torch.sqrt(1 + then**2)).to(z.dtype)
