"""Gaussian data, whose denoiser and probability-flow ODE are closed forms: order of solvers, marginal of samplers."""

import math

import pytest
import torch

from celeris.noise import GumbelSchedule, LossCDFSchedule, alpha_sigma
from celeris.rounding import Denoised
from celeris.sampling import (
    DDIM,
    Ancestral,
    Churn,
    DPMSolverPP2M,
    Euler,
    Heun,
    Karras,
    Quantiles,
    Scheduler,
    UniformLogSNR,
)
from celeris.sampling.solvers.base import mix_noise

SCHEDULES = {"gumbel": GumbelSchedule(mu=0.5, beta=1.0, cut=0.2), "linear": LossCDFSchedule(-4, 6)}


class Gaussian:
    """x0 ~ N(mean, std²) in every coordinate."""

    stagger = 0.0

    def __init__(self, schedule, mean: float = 0.6, std: float = 0.5) -> None:
        self.schedule, self.mean, self.std = schedule, mean, std

    def gamma_at(self, t, block_length, stagger=None):
        return self.schedule.gamma(torch.as_tensor(t, dtype=torch.float64)).expand(block_length)

    def x0_hat(self, out, temperature=1.0):
        return out.vector

    def denoise(self, z, t):
        """E[x0 | z] = mean + alpha·std²·(z − alpha·mean)/(alpha²·std² + sigma²)."""
        alpha, sigma = alpha_sigma(self.gamma_at(t, z.shape[1])[:, None])
        gain = alpha * self.std**2 / (alpha**2 * self.std**2 + sigma**2)
        vector = self.mean + gain * (z - alpha * self.mean)
        return Denoised(vector, vector)

    def flow(self, z):
        """The ODE keeps the number of standard deviations from the mean: z at t = 1 → z at t = 0."""
        alpha, sigma = alpha_sigma(self.schedule.gamma(torch.tensor([1.0, 0.0], dtype=torch.float64)))
        spread = (alpha**2 * self.std**2 + sigma**2).sqrt()
        return alpha[1] * self.mean + spread[1] / spread[0] * (z - alpha[0] * self.mean)

    def run(self, solver, grid, steps, z, generator=None):
        scheduler = Scheduler(self, solver, grid=grid)
        scheduler.set_timesteps(steps)
        for t in scheduler.timesteps:
            z, _ = scheduler.step(self.denoise(z, t), t, z, generator)
        return z


@pytest.mark.parametrize("grid", [Quantiles(), UniformLogSNR(), Karras()], ids=lambda g: type(g).__name__)
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
@pytest.mark.parametrize(
    ("solver", "order"),
    [(DDIM(0.0), 1), (Churn(0.0), 1), (Euler(), 1), (Heun(), 2), (DPMSolverPP2M(), 2)],
    ids=lambda s: type(s).__name__,
)
def test_the_global_error_falls_with_the_order_of_the_solver(solver, order, schedule, grid):
    data, z = Gaussian(schedule), torch.linspace(-2, 2, 16, dtype=torch.float64)[:, None, None]
    noise = torch.Generator().manual_seed(0)  # drawn and multiplied by 0 where a solver has none
    steps = torch.tensor([8, 16, 32, 64, 128])
    if type(solver) is DPMSolverPP2M:
        steps = steps[2:]  # on a long path the first, first-order step and the rest cancel at small n
    errors = [(data.run(solver, grid, int(n), z, noise) - data.flow(z)).abs().max() for n in steps]
    x, y = steps.double().log(), torch.stack(errors).log()
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    assert -slope == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize(
    "solver", [Ancestral(), Churn(8.0, 1.0), Churn(8.0, 1.0, 0.0, 1.0)], ids=["ancestral", "churn", "churn everywhere"]
)
def test_sampling_comes_to_the_variance_of_the_data(solver):
    rng = torch.Generator().manual_seed(0)
    data = Gaussian(LossCDFSchedule(-8, 7))
    miss = []
    for steps in (8, 32, 256):
        z = torch.randn(8_000, 1, 1, dtype=torch.float64, generator=rng)
        out = data.run(solver, Quantiles(), steps, z, rng)
        assert abs(float(out.mean()) - data.mean) < 0.03
        miss.append(abs(float(out.std()) - data.std))
    assert miss[0] > miss[1] > miss[2] and miss[2] < 0.02


def test_a_fixed_eta_keeps_a_bias_that_more_steps_do_not_remove():
    """At one level, z ← alpha·x̂0 + sigma·(k·eps_hat + eta·eps), k² + eta² = 1, has the stationary variance
    V·(1 + k)/(2 − (1 − k)·sigma²/V), V = alpha²·std² + sigma²: unadjusted Langevin steps of a fixed size."""
    data, eta = Gaussian(LossCDFSchedule(-8, 7)), 0.8
    gamma = torch.full((1,), -2.0, dtype=torch.float64)
    alpha, sigma = alpha_sigma(gamma)
    V, k = float(alpha**2 * data.std**2 + sigma**2), math.sqrt(1 - eta**2)
    rng = torch.Generator().manual_seed(1)
    z = torch.randn(20_000, 1, 1, dtype=torch.float64, generator=rng)
    level = data.schedule.t(gamma)[0]
    for _ in range(40):
        noise = torch.randn(z.shape, dtype=torch.float64, generator=rng)
        z = mix_noise(z, data.denoise(z, level).vector, gamma, gamma, k, eta, noise)
    expected = V * (1 + k) / (2 - (1 - k) * float(sigma**2) / V)
    assert float(z.var()) == pytest.approx(expected, rel=0.03)
    assert expected < 0.9 * V
