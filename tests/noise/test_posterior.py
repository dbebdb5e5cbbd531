"""Posteriors and divergences: composition, Gaussian conditioning and torch.distributions, in float64."""

import math

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from celeris.noise.posterior import (
    Gaussian,
    diffusion_kl,
    diffusion_rate,
    gaussian_kl,
    posterior,
    posterior_coefficients,
    prior_kl,
    transition,
)
from celeris.noise.process import alpha_sigma

LEVELS = torch.linspace(-15, 15, 41, dtype=torch.float64)
S, T = (side[LEVELS[:, None] < LEVELS] for side in torch.meshgrid(LEVELS, LEVELS, indexing="ij"))
NEAR = torch.cat([LEVELS, LEVELS]), torch.cat([LEVELS + 1e-3, LEVELS + 1e-9])


def normal(g: Gaussian) -> Independent:
    return Independent(Normal(g.mean, g.std[..., None].expand_as(g.mean)), 1)


@pytest.mark.parametrize("s, t", [(S, T), NEAR], ids=["far", "near"])
def test_posterior_over_the_marginal_of_t_is_the_marginal_of_s(s, t):
    """∫ q(z_s|z_t,x0) q(z_t|x0) dz_t = q(z_s|x0): its mean and its variance."""
    factor, (alpha_s, sigma_s), (alpha_t, sigma_t) = posterior_coefficients(s, t), alpha_sigma(s), alpha_sigma(t)
    assert torch.allclose(factor.z * alpha_t + factor.x0, alpha_s, rtol=1e-12, atol=0)
    assert torch.allclose((factor.z * sigma_t) ** 2 + factor.std**2, sigma_s**2, rtol=1e-12, atol=0)


def test_two_posteriors_in_a_row_are_one():
    """q(z_s|z_t,x0) = ∫ q(z_s|z_u,x0) q(z_u|z_t,x0) dz_u for s < u < t: ancestral sampling of any grid, given x0."""
    u = S + 0.3 * (T - S)
    whole, first, second = posterior_coefficients(S, T), posterior_coefficients(u, T), posterior_coefficients(S, u)
    assert torch.allclose(second.z * first.z, whole.z, rtol=1e-12, atol=0)
    assert torch.allclose(second.z * first.x0 + second.x0, whole.x0, rtol=1e-12, atol=0)
    assert torch.allclose((second.z * first.std).square() + second.std**2, whole.std**2, rtol=1e-12, atol=0)


def test_posterior_is_the_joint_gaussian_conditioned():
    """Var(z_s | z_t) and E[z_s | z_t] from the covariance alpha_{t|s}·sigma_s² of the pair."""
    s, t = S[(S > -5) & (T < 5)], T[(S > -5) & (T < 5)]
    (alpha_s, sigma_s), (alpha_t, sigma_t) = alpha_sigma(s), alpha_sigma(t)
    one = torch.ones(1, dtype=torch.float64)
    covariance = transition(one, s, t).mean[:, 0] * sigma_s**2
    gain = covariance / sigma_t**2
    z, x0 = 0.7, -1.3
    got = posterior(torch.full_like(s, z)[:, None], torch.full_like(s, x0)[:, None], s, t)
    assert torch.allclose(got.mean[:, 0], alpha_s * x0 + gain * (z - alpha_t * x0), rtol=1e-9)
    assert torch.allclose(got.std**2, sigma_s**2 - gain * covariance, rtol=1e-9)


def test_transition_over_the_marginal_of_s_is_the_marginal_of_t():
    one = torch.ones(1, dtype=torch.float64)
    step, (alpha_s, sigma_s), (alpha_t, sigma_t) = transition(one, S, T), alpha_sigma(S), alpha_sigma(T)
    scale = step.mean[:, 0]
    assert torch.allclose(scale * alpha_s, alpha_t, rtol=1e-12, atol=0)
    assert torch.allclose((scale * sigma_s) ** 2 + step.std**2, sigma_t**2, rtol=1e-12, atol=0)


@pytest.mark.parametrize("distance", [1e-3, 1.0, 20.0])
def test_float32_keeps_its_digits_also_for_close_levels(distance):
    s = torch.linspace(-12, 12, 97)
    t = s + distance
    exact = posterior_coefficients(s.double(), t.double())
    for got, want in zip(posterior_coefficients(s, t), exact, strict=True):
        assert got.dtype == torch.float32 and torch.allclose(got.double(), want, rtol=1e-5, atol=0)


def test_sampled_chain_has_the_marginal_of_its_end():
    """Ten ancestral steps of 50,000 points with the true x0: mean and variance within 4 standard errors."""
    random, n = torch.Generator().manual_seed(5), 50_000
    grid, x0 = torch.linspace(4, -2, 11, dtype=torch.float64), torch.full((n, 1), 1.5, dtype=torch.float64)
    draw = Gaussian(alpha_sigma(grid[0]).alpha * x0, alpha_sigma(grid[0]).sigma.expand(n))
    for t, s in zip(grid[:-1], grid[1:], strict=True):
        z = draw.mean + draw.std[:, None] * torch.randn(n, 1, dtype=torch.float64, generator=random)
        draw = posterior(z, x0, s.expand(n), t.expand(n))
    z = draw.mean + draw.std[:, None] * torch.randn(n, 1, dtype=torch.float64, generator=random)
    alpha, sigma = alpha_sigma(grid[-1])
    assert abs(z.mean() - alpha * 1.5) < 4 * sigma / math.sqrt(n)
    assert abs(z.var() / sigma**2 - 1) < 4 * math.sqrt(2 / n)


def test_kl_is_that_of_torch():
    random = torch.Generator().manual_seed(1)
    means, stds = torch.randn(2, 30, 4, dtype=torch.float64, generator=random), torch.rand(2, 30, generator=random)
    p, q = (Gaussian(m, s.double() + 0.1) for m, s in zip(means, stds, strict=True))
    assert torch.allclose(gaussian_kl(p, q), kl_divergence(normal(p), normal(q)), rtol=1e-12)
    assert (gaussian_kl(p, p) == 0).all()


def test_prior_term_is_that_of_torch_for_any_norm():
    gamma = torch.linspace(-6, 12, 19, dtype=torch.float64)
    x0 = torch.randn(19, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 3
    alpha, sigma = alpha_sigma(gamma)
    want = kl_divergence(normal(Gaussian(alpha[:, None] * x0, sigma)), normal(Gaussian(0 * x0, torch.ones_like(sigma))))
    assert torch.allclose(prior_kl(x0.square().sum(-1), gamma, 4), want, rtol=1e-8)
    unit = prior_kl(torch.full_like(gamma, 4.0), gamma, 4)
    assert torch.allclose(unit, 2 * torch.log1p(torch.exp(-gamma)), rtol=1e-9)


def test_diffusion_term_is_the_kl_of_the_two_posteriors():
    """q(z_s|z_t,x0) against the same with x0_hat, whatever z_t is; gammas where torch's own KL keeps its digits."""
    keep = (S > -8) & (T < 8)
    s, t = S[keep], T[keep]
    x0, x0_hat, z = torch.randn(3, len(s), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    want = kl_divergence(normal(posterior(z, x0, s, t)), normal(posterior(z, x0_hat, s, t)))
    assert torch.allclose(diffusion_kl((x0 - x0_hat).square().sum(-1), s, t), want, rtol=1e-8)


def test_discrete_sum_comes_down_to_the_continuous_integral():
    """x0 ~ N(0, I) with its exact denoiser: E‖x0 − x0_hat‖² = D·sigma², and the integral of the rate over gamma is
    ½·D·(log(1 + SNR(0)) − log(1 + SNR(1))), the information between z_0 and x0 less that of z_1. The sum over T steps
    lies above it and its excess is halved when T is doubled."""
    low, high, dim = -5.0, 6.0, 3
    exact = 0.5 * dim * (math.log1p(math.exp(-low)) - math.log1p(math.exp(-high)))
    excess = []
    for steps in (500, 1000, 2000):
        grid = torch.linspace(low, high, steps + 1, dtype=torch.float64)
        t = grid[1:]
        excess.append(diffusion_kl(dim * alpha_sigma(t).sigma ** 2, grid[:-1], t).sum().item() - exact)
    assert excess[0] > excess[1] > excess[2] > 0 and excess[2] < 0.006 * exact
    assert abs(excess[0] / excess[1] - 2) < 0.02 and abs(excess[1] / excess[2] - 2) < 0.02
    middle, h = torch.linspace(low, high, 50, dtype=torch.float64), 1e-7
    error = dim * alpha_sigma(middle).sigma ** 2
    assert torch.allclose(diffusion_kl(error, middle - h, middle) / h, diffusion_rate(error, middle), rtol=1e-6)
