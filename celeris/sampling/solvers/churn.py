"""Stochastic churn: a deterministic solver that goes a little too far and takes fresh noise back in."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.noise import Schedule
from celeris.sampling.solvers.base import Solver, Stepper, keep_still, mix_noise
from celeris.typing import Gamma, Latent


class Churn(Solver):
    """EDM's algorithm 2 (2206.00364) with first-order steps, in the window where tokens are decided (CoBit 2605.07013).

    EDM raises s = sigma/alpha by a factor 1 + c before a call, c = min(S_churn/n, √2 − 1). Here the grid's times are
    those the denoiser is called at, so each step overshoots to s/(1 + c) and comes back up with fresh noise. Both moves
    together keep 1/(1 + c) of the old noise. Outside the window this is DDIM(eta=0); a position stands inside when the
    level it arrives at does.

    Args:
        churn: S_churn ≥ 0, spread over the n steps of a block; 0 is DDIM(eta=0).
        noise: S_noise > 0, factor of the fresh noise; a little above 1 makes up for what a denoiser smooths away.
        low, high: the window in quantiles of the schedule (its t), 0 ≤ low < high ≤ 1.
    """

    needs_noise = True

    def __init__(self, churn: float = 30.0, noise: float = 1.003, low: float = 0.1, high: float = 0.9) -> None:
        if churn < 0:
            raise CelerisError(f"churn is {churn:g}; it must be ≥ 0 (0: no fresh noise).")
        if noise <= 0:
            raise CelerisError(f"noise is {noise:g}; it must be > 0 (1: the forward process's own).")
        if not 0 <= low < high <= 1:
            raise CelerisError(f"The window is low={low:g} … high={high:g}; it needs 0 ≤ low < high ≤ 1.")
        self.churn, self.noise, self.low, self.high = churn, noise, low, high

    def begin(self, schedule: Schedule, steps: int, device: torch.device) -> Stepper:
        window = schedule.gamma(torch.tensor([self.low, self.high], dtype=torch.float64, device=device))
        return _ChurnSteps(min(self.churn / steps, math.sqrt(2) - 1), self.noise, window)


class _ChurnSteps(NamedTuple):
    """Per-step factor, S_noise, and gammas at the window's ends (2,)."""

    amount: float
    scale: float
    window: Tensor

    def step(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None = None) -> Latent:
        assert noise is not None
        target = gamma_s.double()
        inside = (target >= self.window[0]) & (target <= self.window[1])
        old = 1 / (1 + self.amount * inside.to(target))
        fresh = self.scale * torch.sqrt(1 - old**2)
        return keep_still(z, mix_noise(z, x0_hat, gamma_t, gamma_s, old, fresh, noise), gamma_t, gamma_s)

    def rows(self, keep: Tensor) -> Stepper:
        return self
