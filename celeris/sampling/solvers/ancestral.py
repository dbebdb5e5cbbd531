"""Ancestral sampling: draws from the posterior of the forward process."""

import torch
from torch import Tensor

from celeris.sampling.solvers.base import OneStep, mix_noise
from celeris.typing import Gamma, Latent


class Ancestral(OneStep):
    """z_s ~ q(z_s | z_t, x0 = x̂0) (DDPM 2006.11239, eq. 6–7; in gamma: VDM 2107.00630, eq. 33).

    Mean (alpha_{t|s}·sigma_s²/sigma_t²)·z + (alpha_s·sigma_{t|s}²/sigma_t²)·x̂0 and variance
    sigma_{t|s}²·sigma_s²/sigma_t² are the old noise kept at exp((gamma_s − gamma_t)/2), the rest fresh: little for a
    small step, so that many steps follow the reverse diffusion.
    """

    needs_noise = True

    def move(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None) -> Latent:
        assert noise is not None
        down = gamma_s.double() - gamma_t.double()
        return mix_noise(z, x0_hat, gamma_t, gamma_s, torch.exp(down / 2), (-torch.expm1(down)).sqrt(), noise)
