"""Solvers: one function from (z, x0_hat) at one level to z at a cleaner one."""

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.noise import alpha_sigma
from celeris.typing import Gamma, Latent


class DDIM:
    """The eta family: z_s = alpha_s·x̂0 + √(1−eta²)·(sigma_s/sigma_t)·(z_t − alpha_t·x̂0) + eta·sigma_s·eps.

    eta = 0 is DDIM (2010.02502, eq. 12), exact for a constant x̂0; eta = 1 forgets the old noise and renoises x̂0
    afresh. Every member keeps z distributed as the forward process when x̂0 is exact.

    Args:
        eta: share of fresh noise, in [0, 1].
    """

    def __init__(self, eta: float = 0.0) -> None:
        if not 0 <= eta <= 1:
            raise CelerisError(f"eta is {eta:g}; it must lie in 0 (DDIM) … 1 (full renoising).")
        self.eta = eta

    @property
    def needs_noise(self) -> bool:
        return self.eta > 0

    def step(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None = None) -> Latent:
        """z at gamma_s ≤ gamma_t; a position whose level does not change keeps its z.

        Args:
            z, x0_hat, noise: (*shape, D); noise only when eta > 0.
            gamma_t, gamma_s: (*shape) or broadcastable.
        """
        now, then = alpha_sigma(gamma_t.double()), alpha_sigma(gamma_s.double())
        kept = (1 - self.eta**2) ** 0.5 * then.sigma / now.sigma
        out = _to(then.alpha - kept * now.alpha, z) * x0_hat + _to(kept, z) * z
        if self.needs_noise:
            assert noise is not None
            out = out + _to(self.eta * then.sigma, z) * noise
        return torch.where((gamma_t == gamma_s)[..., None], z, out)


def _to(coefficient: Tensor, z: Tensor) -> Tensor:
    return coefficient.to(z.dtype)[..., None]
