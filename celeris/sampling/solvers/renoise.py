"""Full renoising: every call starts again from fresh noise around x0_hat."""

from torch import Tensor

from celeris.noise import add_noise
from celeris.sampling.solvers.base import OneStep
from celeris.typing import Gamma, Latent


class FullRenoise(OneStep):
    """z_s = alpha_s·x̂0 + sigma_s·eps, which is DDIM(eta=1): nothing of z survives but what x̂0 took from it.

    The sampler of distilled students (consistency models 2303.01469, alg. 1), and good at few steps.
    """

    needs_noise = True

    def move(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None) -> Latent:
        assert noise is not None
        return add_noise(x0_hat, gamma_s.double(), noise).to(z.dtype)
