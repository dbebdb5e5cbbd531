"""DDIM and its noisy relatives."""

from torch import Tensor

from celeris.errors import CelerisError
from celeris.sampling.solvers.base import OneStep, mix_noise
from celeris.typing import Gamma, Latent


class DDIM(OneStep):
    """The eta family: z_s = alpha_s·x̂0 + √(1−eta²)·(sigma_s/sigma_t)·(z_t − alpha_t·x̂0) + eta·sigma_s·eps.

    eta = 0 is DDIM (2010.02502, eq. 12): exact for a constant x̂0, first order otherwise. eta = 1 forgets the old noise
    and renoises x̂0 afresh. For eta > 0 each call also makes a Langevin step of size eta²·sigma²/2, whatever the number
    of steps; its bias does not vanish as steps grow (`Ancestral` and `Churn` let it shrink). The paper's own eta
    scales the posterior's noise instead: its 1 is `Ancestral`.

    Args:
        eta: share of fresh noise, in [0, 1].
    """

    def __init__(self, eta: float = 0.0) -> None:
        if not 0 <= eta <= 1:
            raise CelerisError(f"eta is {eta:g}; it must lie in 0 (DDIM) … 1 (full renoising).")
        self.eta = eta

    @property
    def needs_noise(self) -> bool:  # type: ignore[override]
        return self.eta > 0

    def move(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None) -> Latent:
        assert noise is not None or not self.needs_noise
        old = (1 - self.eta**2) ** 0.5
        return mix_noise(z, x0_hat, gamma_t, gamma_s, old, self.eta, noise if self.needs_noise else None)
