"""Ancestral sampling: draws from the posterior of the forward process."""

from torch import Tensor

from celeris.noise.posterior import posterior
from celeris.sampling.solvers.base import OneStep
from celeris.typing import Gamma, Latent


class Ancestral(OneStep):
    """z_s ~ q(z_s | z_t, x0 = x̂0) (DDPM 2006.11239, eq. 6–7).

    Of the old noise exp((gamma_s − gamma_t)/2) is kept and the rest is fresh: little for a small step, so that many
    steps follow the reverse diffusion.
    """

    needs_noise = True

    def move(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None) -> Latent:
        assert noise is not None
        q = posterior(z, x0_hat, gamma_s.double(), gamma_t.double())
        return (q.mean + q.std[..., None] * noise).to(z.dtype)
