"""Diffusion-LM's squared error: its terms by hand, its weightings by the papers, and why its table needs rounding."""

import math

import pytest
import torch

from celeris.errors import CelerisError
from celeris.noise import LossCDFSchedule, RectifiedFlowSchedule, add_noise, alpha_sigma
from celeris.noise.levels import LevelMixture, Together
from celeris.noise.prediction import Eps, V
from celeris.objectives import (
    EDM,
    ELBO,
    CrossEntropy,
    MeanSquaredError,
    MinSNR,
    Sigmoid,
    Unit,
    VariationalBound,
    Velocity,
)
from tests.core.small import small_model
from tests.objectives.parts import block_batch, text

LEVELS = LevelMixture([Together()], [1])
GAMMA = torch.linspace(-12, 14, 27, dtype=torch.float64)
SLOPE = torch.full_like(GAMMA, 7.0)


def test_a_trained_table_without_rounding_is_refused():
    model = small_model()
    objective = MeanSquaredError(LEVELS, rounding_weight=0.0)
    with pytest.raises(CelerisError, match=r"rounding_weight is 0.*freeze the table"):
        objective(model, block_batch(text(4)), 0)
    model.embedding.requires_grad_(False)
    assert "loss_rounding" not in objective(model, block_batch(text(4)), 0).terms
    with pytest.raises(CelerisError, match="rounding_weight is -1"):
        MeanSquaredError(LEVELS, rounding_weight=-1.0)


@pytest.mark.parametrize("rounding", [0.0, 1.0])
def test_rounding_keeps_a_table_apart_that_squared_error_alone_would_collapse(rounding):
    """Two rows almost equal: the squared error pulls them together, and with rounding they move apart."""
    model = small_model()
    with torch.no_grad():
        model.embedding.weight.copy_(torch.ones(13, 8) + 0.3 * torch.randn(13, 8, generator=torch.manual_seed(0)))

    def spread():
        table = model.embedding.table[2:]
        return float((table - table.mean(0)).square().sum())

    objective = MeanSquaredError(LEVELS, rounding_weight=1.0, next_token_weight=0.0)
    objective.rounding_weight = max(rounding, 1e-12)  # past the guard
    before = spread()
    optimizer = torch.optim.SGD([model.embedding.weight], lr=1.0)
    for step in range(5):
        optimizer.zero_grad()
        objective(model, block_batch(text(12), first=12 * step), 0).loss.backward()
        optimizer.step()
    assert spread() > before if rounding else spread() < before


def test_its_terms_are_those_of_the_paper():
    """By hand from the same random numbers: mean ‖x0 − x0_hat‖²/D, tied rounding at the clean end, alpha_1²·‖x0‖²/D."""
    model, batch = small_model(), block_batch(text(6))
    model.schedule = LossCDFSchedule(-1.0, 5.0)
    objective = MeanSquaredError(LEVELS, next_token_weight=0.0)
    terms = objective(model, batch, 4).terms
    noise = LEVELS.draw(batch.index, 2, 8, 8, 4, batch.canvas.device)
    x0 = model.embedding(batch.canvas)
    gamma = model.schedule.gamma(noise.u)
    out = model.predict(add_noise(x0, gamma, noise.eps), gamma, model.encode_context(batch.context), batch.start)
    assert torch.allclose(terms["loss_diffusion"], (x0 - model.x0_hat(out)).square().mean(), rtol=1e-5)
    noisy = x0 + math.exp(-0.5) * noise.eps  # sigma/alpha at gamma = −1
    logits = noisy @ model.embedding.table.T + model.rounding.prior
    truth = torch.nn.functional.cross_entropy(logits.flatten(0, 2), batch.canvas.flatten())
    assert torch.allclose(terms["loss_rounding"], truth, rtol=1e-4)
    assert math.isclose(float(terms["loss_prior"]), 1 / (1 + math.exp(5.0)), rel_tol=1e-4)


def test_with_the_weight_of_the_bound_it_is_the_bound_per_dimension():
    """The rows that the bound reconstructs are left out."""
    model, batch = small_model(), block_batch(text(16))
    bound = VariationalBound(LEVELS, self_conditioning=0.0)
    kept = (bound.draw(model, batch, 0).u > 0).all(-1).all(-1)
    squared = MeanSquaredError(LEVELS, weighting=ELBO())(model, batch.rows(kept), 0).terms["loss_diffusion"]
    assert torch.allclose(8 * squared, bound(model, batch, 0).terms["loss_diffusion"], rtol=1e-5)


def test_unit_and_bound():
    assert (Unit()(GAMMA, SLOPE) == 1).all()
    # VDM eq. 17: −½·dSNR/dt, SNR = exp(−gamma)
    time = ((GAMMA - GAMMA[0]) / 7).requires_grad_()
    slope = torch.autograd.grad(torch.exp(-(GAMMA[0] + 7 * time)).sum(), time)[0]
    assert torch.allclose(ELBO()(GAMMA, SLOPE), -0.5 * slope)


def test_min_snr_is_the_papers_in_each_prediction():
    """x0: min(SNR, 5); eps: min(SNR, 5)/SNR (2303.09556, section 3.4), the same loss in other units."""
    alpha, sigma = alpha_sigma(GAMMA)
    ratio = (alpha / sigma) ** 2
    assert torch.allclose(MinSNR()(GAMMA, SLOPE), torch.minimum(ratio, torch.tensor(5.0)))
    error = torch.randn(27, 8, dtype=torch.float64)
    z, x0 = torch.randn(27, 8, dtype=torch.float64), torch.randn(27, 8, dtype=torch.float64)
    eps = Eps().from_x0(x0 + error, z, GAMMA) - Eps().from_x0(x0, z, GAMMA)
    own = MinSNR()(GAMMA, SLOPE) * error.square().sum(-1)
    assert torch.allclose(own, torch.minimum(ratio, torch.tensor(5.0)) / ratio * eps.square().sum(-1))


@pytest.mark.parametrize("sigma_data", [0.5, 1.0])
def test_edm_weight_is_one_over_c_out_squared(sigma_data):
    """2206.00364, table 1; with sigma_data = 1 the network's own target is v."""
    sigma = torch.exp(GAMMA / 2)
    c_out = sigma * sigma_data / (sigma**2 + sigma_data**2).sqrt()
    weight = EDM(sigma_data)(GAMMA, SLOPE)
    assert torch.allclose(weight * c_out**2, torch.ones_like(GAMMA))
    if sigma_data == 1.0:
        x0, error, z = torch.randn(3, 27, 8, dtype=torch.float64)
        v = V().from_x0(x0 + error, z, GAMMA) - V().from_x0(x0, z, GAMMA)
        assert torch.allclose(weight * error.square().sum(-1), v.square().sum(-1))


@pytest.mark.parametrize("bias", [-2.0, 0.0, 3.0])
def test_sigmoid_is_the_papers_in_log_snr(bias):
    """½·|dλ/dt|·e^b·sigmoid(λ − b) (2410.19324); a fraction of the bound, half of it at λ = b."""
    lam = -GAMMA
    truth = 0.5 * SLOPE * math.exp(bias) * torch.sigmoid(lam - bias)
    assert torch.allclose(Sigmoid(bias)(GAMMA, SLOPE), truth)
    middle = torch.tensor([-bias], dtype=torch.float64)
    assert torch.allclose(Sigmoid(bias)(middle, SLOPE[:1]), 0.5 * ELBO()(middle, SLOPE[:1]))


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_velocity_weight_is_the_squared_error_of_a_rectified_flows_velocity(scale):
    """x0, x0_hat and the velocities they imply, at the schedule's own times; ELF's floor holds it at 1/0.05²."""
    schedule = RectifiedFlowSchedule(-4.0, 10.0, scale)
    t = torch.linspace(0, 1, 50, dtype=torch.float64)
    gamma, tau = schedule.gamma(t), schedule.paper_time(t)
    x0, x0_hat, eps = torch.randn(3, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = tau * x0 + (1 - tau) * scale * eps
    velocity, found = (x0 - z) / (1 - tau), (x0_hat - z) / (1 - tau)
    weight = Velocity(scale)(gamma, torch.ones_like(gamma))
    torch.testing.assert_close(weight * (x0 - x0_hat) ** 2, (velocity - found) ** 2)
    assert float(Velocity(scale)(torch.tensor(-30.0), torch.tensor(1.0))) == pytest.approx(400)


def test_the_anchor_is_the_cross_entropy_of_the_estimate():
    model = small_model()
    batch = block_batch(text(4))
    plain, anchored = (MeanSquaredError(LEVELS, anchor_weight=w)(model, batch, 0) for w in (0.0, 0.7))
    reading = CrossEntropy(LEVELS, self_conditioning=0.0)(model, batch, 0).terms["loss_diffusion"]
    torch.testing.assert_close(anchored.terms["loss_anchor"], reading)
    torch.testing.assert_close(anchored.loss - plain.loss, 0.7 * reading)
    with pytest.raises(CelerisError, match="anchor_weight is -1"):
        MeanSquaredError(LEVELS, anchor_weight=-1.0)


def test_a_weighting_of_the_cross_entropy_weights_each_level():
    model, batch = small_model(), block_batch(text(6))
    plain, weighted = CrossEntropy(LEVELS, 0.0), CrossEntropy(LEVELS, 0.0, weighting=Unit())
    assert torch.equal(plain(model, batch, 0).loss, weighted(model, batch, 0).loss)
    capped = CrossEntropy(LEVELS, 0.0, weighting=MinSNR(1e-6))(model, batch, 0).terms["loss_diffusion"]
    assert torch.allclose(capped, 1e-6 * plain(model, batch, 0).terms["loss_diffusion"], rtol=1e-3)


@pytest.mark.parametrize("make", [MinSNR, EDM])
def test_scales_must_be_positive(make):
    with pytest.raises(CelerisError, match="is 0; a weighting needs a positive one"):
        make(0.0)
