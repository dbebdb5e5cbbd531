"""Integrators of the probability flow: Heun's method in fixed steps and with error control.

The flow is dy/ds = eps_hat(y, gamma), s = exp(gamma/2), y = z/alpha (`celeris.evaluation.ode`): in these coordinates a
step of any size is exact wherever x0_hat stands still, which is most of the path (EDM 2206.00364, section 3).
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.typing import Latent

Probe = Callable[[], Tensor]


class Rate(NamedTuple):
    """dy/ds (B, N, C, D), and −d log p(y)/dgamma (B,) without its constant, summed over each row's positions."""

    velocity: Latent
    trace: Tensor


# y (B, N, C, D), gamma (B,), probes (K, B, N, C, D) → the rate of change there.
Field = Callable[[Latent, Tensor, Tensor], Rate]


class Flowed(NamedTuple):
    """y at gamma_max, ∫ trace dgamma (B,) and the field evaluations of each row (B,)."""

    y: Latent
    integral: Tensor
    evaluations: Tensor


class Integrator(Protocol):
    """Carries y from gamma `low` to `high`; a fresh probe a step, the same at both of its ends."""

    def __call__(self, field: Field, y: Latent, low: float, high: float, probe: Probe) -> Flowed: ...


class Heun:
    """Heun's method in equal steps of gamma: second order, two evaluations a step.

    Args:
        steps: of the whole path.
    """

    def __init__(self, steps: int = 128) -> None:
        if steps < 1:
            raise CelerisError(f"steps={steps}; the ODE needs at least 1.")
        self.steps = steps

    def __call__(self, field: Field, y: Latent, low: float, high: float, probe: Probe) -> Flowed:
        integral = y.new_zeros(len(y), dtype=torch.float64)
        for gamma, after in pairwise(torch.linspace(low, high, self.steps + 1, dtype=torch.float64).tolist()):
            h, ds, drawn = after - gamma, math.exp(after / 2) - math.exp(gamma / 2), probe()
            here = field(y, torch.full_like(integral, gamma), drawn)
            there = field(y + ds * here.velocity, torch.full_like(integral, after), drawn)
            y = y + 0.5 * ds * (here.velocity + there.velocity)
            integral = integral + 0.5 * h * (here.trace + there.trace)
        return Flowed(y, integral, torch.full((len(y),), 2 * self.steps))


class AdaptiveHeun:
    """Heun's method with a step size per row: the difference to the Euler step inside it is the error estimate.

    Args:
        tolerance: error of a step, in z = alpha·y (root mean square over the row) and in the log density
            (nats per coordinate).
        first: gamma of the first step tried.
        limit: field evaluations of a row before giving up.
    """

    def __init__(self, tolerance: float = 1e-3, first: float = 0.1, limit: int = 20_000) -> None:
        if not tolerance > 0:
            raise CelerisError(f"tolerance={tolerance:g}; the error allowed a step must be positive.")
        self.tolerance, self.first, self.limit = tolerance, first, limit

    def __call__(self, field: Field, y: Latent, low: float, high: float, probe: Probe) -> Flowed:
        integral = y.new_zeros(len(y), dtype=torch.float64)
        gamma, h = integral + low, integral + self.first
        evaluations = torch.zeros(len(y), dtype=torch.long)
        while bool((going := gamma < high).any()):
            if int(evaluations.max()) >= self.limit:
                raise CelerisError(
                    f"The ODE took {self.limit} evaluations at tolerance {self.tolerance:g} and is not done; raise it."
                )
            last = h >= high - gamma
            h = torch.where(last, high - gamma, h)
            after, drawn = gamma + h, probe()
            ds = ((after / 2).exp() - (gamma / 2).exp())[:, None, None, None].to(y)
            here = field(y, gamma, drawn)
            there = field(y + ds * here.velocity, after, drawn)
            alpha = torch.sigmoid(-after).sqrt()
            off = (0.5 * ds * (there.velocity - here.velocity)).square().flatten(1).mean(1).sqrt().double() * alpha
            off_density = 0.5 * h * (there.trace - here.trace).abs() / y[0].numel()
            error = torch.maximum(off, off_density) / self.tolerance
            kept = going & (error <= 1)
            y = torch.where(kept[:, None, None, None], y + 0.5 * ds * (here.velocity + there.velocity), y)
            integral = integral + torch.where(kept, 0.5 * h * (here.trace + there.trace), 0.0)
            gamma = torch.where(kept, torch.where(last, high, after), gamma)
            evaluations += 2 * going.cpu()
            h = h * (0.9 * error.clamp_min(1e-12).rsqrt()).clamp(0.2, 5.0)
        return Flowed(y, integral, evaluations)
