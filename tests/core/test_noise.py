"""Schedules and the forward process: identities, in float64 where the formula allows."""

import math

import pytest
import torch

from celeris.noise import GumbelSchedule, LossCDFSchedule, Observed, add_noise, alpha_sigma, evidence_scale, snr
from celeris.noise.levels import LevelMixture, PerToken, Staggered, Together
from celeris.noise.path import canvas_levels, fitting_stagger
from celeris.noise.times import golden_uniform


def seen(gamma, cross_entropy, counted=None) -> Observed:
    """An observation without x0 (no schedule here asks for the rate)."""
    everywhere = torch.ones_like(gamma, dtype=torch.bool)
    return Observed(
        gamma.detach(), cross_entropy.detach(), everywhere if counted is None else counted, cross_entropy.detach
    )


def bent() -> LossCDFSchedule:
    schedule = LossCDFSchedule(-3, 9, bins=24)
    gamma = torch.linspace(-3, 9, 4000)
    for _ in range(50):
        schedule.fit(seen(gamma, 3 * torch.sigmoid(2 * (gamma - 3))))
    return schedule


SCHEDULES = [GumbelSchedule(mu=2.5), LossCDFSchedule(-3, 9), bent()]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedule_increases_inverts_and_knows_its_slope(schedule):
    t = torch.linspace(0, 1, 1001, dtype=torch.float64)
    gamma = schedule.gamma(t)
    assert (gamma.diff() > 0).all()
    assert torch.allclose(schedule.t(gamma), t, atol=1e-9)
    middle = torch.linspace(0.0123, 0.9876, 300, dtype=torch.float64)
    h = 1e-7
    numeric = (schedule.gamma(middle + h) - schedule.gamma(middle - h)) / (2 * h)
    assert torch.allclose(schedule.slope(middle), numeric, rtol=1e-3)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_coefficients_are_finite_at_the_ends(schedule, dtype):
    t = torch.tensor([0, 1e-5, 0.5, 1 - 1e-5, 1])
    gamma = schedule.gamma(t).to(dtype)
    for value in (*alpha_sigma(gamma), snr(gamma), evidence_scale(gamma), schedule.slope(t)):
        assert torch.isfinite(value).all()


def test_forward_process_keeps_the_variance_and_names_are_consistent():
    gamma = torch.linspace(-20, 20, 401, dtype=torch.float64)
    alpha, sigma = alpha_sigma(gamma)
    assert torch.allclose(alpha**2 + sigma**2, torch.ones_like(gamma))
    assert torch.allclose(torch.log(sigma**2 / alpha**2), gamma, atol=1e-6)
    assert torch.allclose(evidence_scale(gamma), alpha / sigma**2, rtol=1e-6)
    x0, eps = torch.randn(401, 3, dtype=torch.float64), torch.randn(401, 3, dtype=torch.float64)
    z = add_noise(x0, gamma, eps)
    assert torch.allclose((z - alpha[:, None] * x0) / sigma[:, None], eps, atol=1e-4)


def test_gumbel_fit_recovers_a_known_curve():
    schedule = GumbelSchedule(mu=1.0, beta=1.3, entropy=2.0)
    optimizer = torch.optim.Adam(schedule.parameters(), lr=3e-2)
    gamma = torch.linspace(-2, 9, 500)
    loss = 3.1 * torch.exp(-torch.exp(-(gamma - 2.7) / 0.8))
    for _ in range(600):
        optimizer.zero_grad()
        schedule.fit(seen(gamma, loss)).backward()
        optimizer.step()
    assert abs(schedule.mu.item() - 2.7) < 0.02
    assert abs(schedule.beta.item() - 0.8) < 0.02
    assert abs(schedule.entropy.item() - 3.1) < 0.02


def test_loss_cdf_gains_the_same_information_per_step():
    schedule = bent()
    gamma = schedule.gamma(torch.linspace(0, 1, 11, dtype=torch.float64))
    loss = 3 * torch.sigmoid(2 * (gamma - 3))
    gain = 0.9 * loss.diff() / 3 + 0.1 * gamma.diff() / 12
    assert torch.allclose(gain, torch.full_like(gain, 0.1), atol=1.2e-2)  # bins half a unit wide
    assert gamma.diff().max() > 3 * gamma.diff().min()  # a uniform grid would not pass


def test_gradient_of_the_schedule_term_stays_in_the_schedule():
    schedule = GumbelSchedule(mu=2.0)
    loss = torch.tensor([1.0, 2.0], requires_grad=True)
    gamma, counted = torch.tensor([1.0, 3.0], requires_grad=True), torch.tensor([True, True])
    schedule.fit(seen(gamma, loss, counted)).backward()
    assert loss.grad is None and gamma.grad is None and schedule.mu.grad.abs() > 0


@pytest.mark.parametrize("make", [lambda: GumbelSchedule(mu=2.0), lambda: LossCDFSchedule(-3, 9)])
def test_what_is_not_counted_teaches_the_schedule_nothing(make):
    gamma, loss = torch.linspace(-2, 8, 40), torch.linspace(0, 3, 40)
    counted = torch.arange(40) % 2 == 0
    first, second = make(), make()
    terms = [s.fit(seen(gamma, v, counted)) for s, v in ((first, loss), (second, torch.where(counted, loss, 1e6)))]
    assert terms[0] is terms[1] is None or torch.equal(*terms)
    assert all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


def test_a_loss_that_is_not_a_number_does_not_poison_the_curve():
    first, second, gamma = LossCDFSchedule(-3, 9), LossCDFSchedule(-3, 9), torch.linspace(-2, 8, 40)
    loss = torch.linspace(0, 3, 40)
    broken = torch.where(torch.arange(40) == 7, torch.nan, loss)
    second.fit(seen(gamma, loss, torch.arange(40) != 7))
    first.fit(seen(gamma, broken))
    assert torch.equal(first.loss, second.loss) and torch.isfinite(first.loss).all()


@pytest.mark.parametrize("stagger", [0.0, 0.7, 5.0])
def test_canvas_levels_start_in_order_and_meet_at_both_ends(stagger):
    t = torch.linspace(0, 1, 2001, dtype=torch.float64)
    levels = canvas_levels(t, 6, stagger)
    assert (levels.u[0] == 0).all() and (levels.u[-1] == 1).all()
    assert (levels.u.diff(dim=0) >= 0).all()
    assert (levels.u.diff(dim=1) >= 0).all()  # left is never noisier than right
    travelled = levels.speed[:-1].mean(0)
    assert torch.allclose(travelled, torch.ones_like(travelled), atol=0.02)


@pytest.mark.parametrize("steps", [2, 3, 4, 8, 16, 32])
def test_with_a_fitting_stagger_every_position_is_seen_on_its_way(steps):
    stagger = fitting_stagger(6.0, steps)
    t = 1 - torch.arange(steps, dtype=torch.float64) / steps
    u = canvas_levels(t, 16, stagger).u
    assert ((u > 0) & (u < 1)).any(0)[1:].all()  # the first position starts to move with the clock itself
    assert stagger == 6.0 or steps < 10
    if steps == 4:  # and with the full one it is not so
        too_far = canvas_levels(t, 16, 6.0).u
        assert not ((too_far > 0) & (too_far < 1)).any(0)[1:].all()


def test_one_position_canvas_has_no_stagger():
    t = torch.linspace(0, 1, 11, dtype=torch.float64)
    assert torch.equal(canvas_levels(t, 1, 4.0).u[:, 0], t)


def test_level_draws_depend_on_seed_and_index_only():
    mixture = LevelMixture([Together(), PerToken(), Staggered(0, 4)], [1, 1, 1])
    device = torch.device("cpu")
    whole = mixture.draw(torch.arange(100, 108), 3, 4, 5, seed=1, device=device)
    half = mixture.draw(torch.arange(104, 108), 3, 4, 5, seed=1, device=device)
    assert torch.equal(whole.u[4:], half.u) and torch.equal(whole.eps[4:], half.eps) and whole.coins[4:] == half.coins
    other = mixture.draw(torch.arange(104, 108), 3, 4, 5, seed=2, device=device)
    assert not torch.equal(other.eps, half.eps) and not torch.equal(other.u, half.u)


def test_golden_uniform_is_evenly_spread():
    u = golden_uniform(torch.arange(1000) + 10**12, 12345).sort().values
    assert u[0] >= 0 and u[-1] < 1
    assert u.diff().max() < 3 / 1000  # i.i.d. draws leave gaps of about 7/1000
    assert not math.isclose(
        golden_uniform(torch.tensor([5]), 1).item(), golden_uniform(torch.tensor([5]), 2**62).item()
    )
