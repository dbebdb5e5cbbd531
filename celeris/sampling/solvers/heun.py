"""Heun's method for the probability-flow ODE: second order, two denoiser calls a step."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from celeris.noise import Schedule, alpha_sigma
from celeris.sampling.solvers.base import Solver, Stepper, coefficient, keep_still, mix_noise
from celeris.typing import Gamma, Latent


class Heun(Solver):
    """EDM's algorithm 1 (2206.00364) in y = z/alpha, s = sigma/alpha: an Euler step, then the mean of both slopes.

    n steps are 2n − 1 denoiser calls: both ends of each step, and one for the last, whose end is never shown to the
    denoiser (an Euler step, as in the paper). With slopes (y − x̂0)/s the correction of the Euler point z' is
    alpha_s·½(s_t/s_s − 1)·(x̂0' − x̂0), where x̂0' is what the denoiser says at z'; written so, no small s is divided by.
    """

    def path(self, times: Sequence[float]) -> list[float]:
        inner = [t for t in times[1:-1] for _ in range(2)]
        return [times[0], *inner, times[-1]]

    def begin(self, schedule: Schedule, steps: int, device: torch.device) -> Stepper:
        return _HeunSteps()


class _Predicted(NamedTuple):
    """Where the Euler step came from."""

    x0_hat: Latent
    gamma_t: Gamma
    gamma_s: Gamma


class _HeunSteps:
    def __init__(self) -> None:
        self.predicted: _Predicted | None = None

    def step(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None = None) -> Latent:
        if self.predicted is None:
            self.predicted = _Predicted(x0_hat, gamma_t, gamma_s)
            return keep_still(z, mix_noise(z, x0_hat, gamma_t, gamma_s, 1.0), gamma_t, gamma_s)
        first, self.predicted = self.predicted, None
        half = torch.expm1((first.gamma_t.double() - first.gamma_s.double()) / 2) / 2  # 0 where a position stood still
        alpha = alpha_sigma(first.gamma_s.double()).alpha
        return z + coefficient(alpha * half, z) * (x0_hat - first.x0_hat)

    def rows(self, keep: Tensor) -> Stepper:
        if self.predicted is not None:
            self.predicted = self.predicted._replace(x0_hat=self.predicted.x0_hat[keep])
        return self
