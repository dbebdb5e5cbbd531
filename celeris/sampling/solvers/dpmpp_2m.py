"""DPM-Solver++(2M): second order from one denoiser call a step and the memory of the last one."""

import torch
from torch import Tensor

from celeris.noise import Schedule
from celeris.sampling.solvers.base import Solver, Stepper, keep_still, mix_noise
from celeris.typing import Gamma, Latent

LARGEST_RATIO = 2.0


class DPMSolverPP2M(Solver):
    """Algorithm 2 of 2211.01095 in lambda = −gamma/2: DDIM with x̂0 replaced by its value halfway along the step,
    x̂0 + (h/2h')·(x̂0 − x̂0'), extrapolated from the call before (x̂0', step h').

    Each position keeps its own history: its first move is first order, and waiting does not count as a move. h/h' is
    held at 2, so that the extrapolation never goes beyond one whole difference: a staggered position may begin in the
    middle of a step, and grids end with a long one. All gammas are finite, so the last step needs no rule of its own.
    """

    def begin(self, schedule: Schedule, steps: int, device: torch.device) -> Stepper:
        return _MultistepSteps()


class _MultistepSteps:
    def __init__(self) -> None:
        self.last: tuple[Latent, Tensor] | None = None

    def step(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None = None) -> Latent:
        length = (gamma_t.double() - gamma_s.double()) / 2
        halfway = x0_hat
        if self.last is not None:
            before, length_before = self.last
            # No move before: nothing to extrapolate from.
            ratio = torch.where(length_before > 0, length / length_before, 0.0).clamp_max(LARGEST_RATIO)
            halfway = x0_hat + (ratio / 2).to(z.dtype)[..., None] * (x0_hat - before)
        self.last = (x0_hat, length)
        return keep_still(z, mix_noise(z, halfway, gamma_t, gamma_s, 1.0), gamma_t, gamma_s)

    def rows(self, keep: Tensor) -> Stepper:
        if self.last is not None:
            self.last = (self.last[0][keep], self.last[1])
        return self
