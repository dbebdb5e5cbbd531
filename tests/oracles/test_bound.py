"""The bound under an exact posterior is the entropy itself, whatever the schedule and however the canvas moves."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.evaluation.bound import measure_rates, row_bounds
from celeris.evaluation.clock import Clock, measured_clock, uniform_clock
from celeris.evaluation.likelihood import next_token_nll, variational_bound
from celeris.noise import LossCDFSchedule, add_noise, alpha_sigma
from celeris.noise.process import evidence_scale
from celeris.rounding import Denoised
from tests.core.small import small_model
from tests.oracles.chain import Chain
from tests.oracles.schedules import NAMES, shipped

ALPHABETS = {"2": [0.5, 0.5], "16": [1 / 16] * 16, "3": [0.7, 0.2, 0.1]}
ENTROPIES = {"2": 0.693, "16": 2.773, "3": 0.802}


def bounds(chain: Chain, schedule, ids: Tensor, samples: int, stagger: float = 0.0, denoise=None) -> Tensor:
    """(rows, 3) terms with a measured clock, as for a model."""
    denoise = denoise or chain.denoise
    rates = measure_rates(denoise, chain.table, schedule, ids[:100], seed=0)
    clock = measured_clock(schedule, rates.edges, rates.rate, ids.shape[2], stagger)
    index = torch.arange(len(ids))
    with torch.no_grad():
        return row_bounds(
            denoise, chain.table, schedule, ids, index, stagger=stagger, samples=samples, seed=0, clock=clock
        )


def check_entropy(terms: Tensor, ids: Tensor, chain: Chain, precision: float) -> None:
    """The mean excess over −log p is 0 within 3 standard errors, and no more than the prior term lies above it.

    The excess of each row over its own −log p is what a wrong term shows in; the spread of −log p itself is not noise
    of the estimate.
    """
    entropy = chain.entropy(ids.shape[2])
    total = terms.sum(1)
    excess = total - chain.nats(ids[:, 0])
    error = float(excess.std() / math.sqrt(len(ids)))
    assert error < precision * entropy  # else the test would show nothing
    assert -3 * error < float(excess.mean()) < 3 * error + float(terms[:, 2].mean())
    assert abs(float(total.mean()) - entropy) < 3 * float(total.std() / math.sqrt(len(ids)))


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("name", NAMES)
def test_single_token_bound_equals_entropy(alphabet, name):
    chain = Chain.memoryless(ALPHABETS[alphabet])
    assert chain.entropy(1) == pytest.approx(ENTROPIES[alphabet], abs=1e-3)
    ids = chain.sample(2000, 1, seed=0)[:, None]
    schedule = shipped(name)
    assert float(schedule.gamma(torch.ones(1, dtype=torch.float64))) > 7  # an end where nothing is known
    check_entropy(bounds(chain, schedule, ids, samples=10), ids, chain, precision=0.05)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stagger", [0.0, 2.0])
def test_chain_bound_equals_entropy(name, stagger):
    chain, rows, length = Chain(vocab_size=8), 1000, 6
    ids = chain.sample(rows, length)[:, None]
    check_entropy(bounds(chain, shipped(name), ids, samples=16, stagger=stagger), ids, chain, precision=0.025)


def test_a_path_that_ends_early_costs_exactly_the_divergence_from_the_prior():
    """E[bound] = H + KL(q(z_1) ‖ N(0, I)), here far from H: without its prior term it would lie below H."""
    chain, rows = Chain.memoryless(ALPHABETS["3"]), 4000
    ids, schedule = chain.sample(rows, 1, seed=0)[:, None], LossCDFSchedule(-3, 0.5)
    gap = gap_from_prior(chain, 0.5)
    excess = bounds(chain, schedule, ids, samples=10).sum(1) - chain.nats(ids[:, 0])
    error = float(excess.std() / math.sqrt(rows))
    assert gap > 20 * error
    assert abs(float(excess.mean()) - gap) < 4 * error


def test_a_path_that_starts_late_leaves_the_rest_to_the_reconstruction():
    """At gamma_min = 1 the tokens are not decided: half of the bound is −log p(token | z_0)."""
    chain = Chain.memoryless(ALPHABETS["3"])
    ids = chain.sample(3000, 1, seed=0)[:, None]
    terms = bounds(chain, LossCDFSchedule(1, 10), ids, samples=6)
    assert float(terms[:, 1].mean()) > 0.2
    check_entropy(terms, ids, chain, precision=0.05)


def gap_from_prior(chain: Chain, gamma: float, draws: int = 200_000) -> float:
    """KL(q(z) ‖ N(0, I)) of one noised symbol at `gamma`, by sampling."""
    rng = torch.Generator().manual_seed(11)
    ids = torch.multinomial(chain.first, draws, True, generator=rng)
    alpha, sigma = (float(x) for x in alpha_sigma(torch.tensor(gamma, dtype=torch.float64)))
    table = chain.table.double()
    z = alpha * table[ids] + sigma * torch.randn(draws, table.shape[1], generator=rng, dtype=torch.float64)
    squares = -0.5 * (z[:, None] - alpha * table).square().sum(-1) / sigma**2 - table.shape[1] * math.log(sigma)
    return float((torch.logsumexp(squares + chain.first.log(), -1) + 0.5 * z.square().sum(-1)).mean())


def test_tables_without_equal_norms():
    chain = Chain.memoryless(ALPHABETS["3"])
    chain.table = chain.table * torch.tensor([[0.6], [1.0], [1.7]])
    ids = chain.sample(3000, 1, seed=0)[:, None]
    schedule = LossCDFSchedule(-3, 0.5)
    excess = bounds(chain, schedule, ids, samples=10).sum(1) - chain.nats(ids[:, 0])
    error = float(excess.std() / math.sqrt(len(ids)))
    assert abs(float(excess.mean()) - gap_from_prior(chain, 0.5)) < 4 * error
    z = add_noise(chain.table[ids], torch.full(ids.shape, -1.0), torch.randn(*ids.shape, 5))
    bayes = chain.first.log() - 0.5 * (z[..., None, :] - torch.sigmoid(torch.tensor(1.0)).sqrt() * chain.table).square(
    ).sum(-1) / torch.sigmoid(torch.tensor(-1.0))  # fmt: skip
    found = chain.denoise(z, torch.full(ids.shape, -1.0), ids).logits
    assert torch.allclose(found, torch.log_softmax(bayes, -1).float(), atol=1e-4)


def test_a_worse_denoiser_has_a_worse_bound():
    """Forgetting the neighbours costs the mutual information they carry."""
    chain, rows, length = Chain(), 800, 8
    ids = chain.sample(rows, length)[:, None]

    def alone(z, gamma, _):
        return Denoised((evidence_scale(gamma)[..., None] * (z @ chain.table.T) + chain.first.log()).float())

    total = bounds(chain, LossCDFSchedule(-2, 9), ids, samples=12, denoise=alone).sum(1)
    marginal = length * float(-(chain.first * chain.first.log()).sum())
    error = float(total.std() / math.sqrt(rows))
    assert abs(float(total.mean()) - marginal) < 3 * error
    assert marginal > chain.entropy(length) + 6 * error


@pytest.mark.parametrize("stagger", [0.0, 3.0])
def test_a_clock_changes_the_variance_and_not_the_mean(stagger):
    """∫ f dt under a density measured badly, on purpose, equals the plain average over t."""
    schedule, length = shipped("cosine"), 5
    edges = schedule.gamma(torch.tensor([0.0, 1.0], dtype=torch.float64))
    edges = torch.linspace(float(edges[0]), float(edges[1]), 14, dtype=torch.float64)
    rate = torch.rand(13, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 4
    quantile = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    skewed, even = measured_clock(schedule, edges, rate, length, stagger), uniform_clock()
    for f in (torch.ones_like, torch.square, lambda t: torch.exp(3 * t)):
        means = [float((f(draw.t) * draw.weight).mean()) for draw in (skewed.draw(quantile), even.draw(quantile))]
        assert means[0] == pytest.approx(means[1], rel=1e-4)
    t = skewed.draw(quantile).t
    assert (t.diff() >= 0).all() and t[0] >= 0 and t[-1] <= 1
    counts = torch.histc(t, 10, 0, 1) / len(t)
    assert (counts - 0.1).abs().max() > 0.04  # it is skewed


def test_a_clock_survives_levels_that_float_cannot_tell_apart():
    schedule = LossCDFSchedule(-4, 8)
    edges = torch.tensor([-4.0, -4.0, 1.0, 1.0 + 1e-16, 8.0, 8.0], dtype=torch.float64)
    clock = measured_clock(schedule, edges, torch.ones(5, dtype=torch.float64), 4, 0.0)
    draw = clock.draw(torch.linspace(0, 1, 101, dtype=torch.float64))
    assert torch.isfinite(draw.weight).all() and (draw.weight > 0).all()
    assert isinstance(clock, Clock) and clock.cdf[-1] == pytest.approx(1.0)


def test_a_measured_clock_and_mirrored_noise_cut_the_error():
    """At the same number of denoiser calls, against independent noise at levels uniform in t."""
    chain, schedule = Chain(vocab_size=8), shipped("cosine")
    ids = chain.sample(1, 6).expand(1500, 6)[:, None]  # one row many times: all spread is the estimate's own
    ours = bounds(chain, schedule, ids, samples=2).sum(1)
    t = torch.rand(4, len(ids), 1, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = torch.zeros(len(ids), dtype=torch.float64)
    x0 = F.embedding(ids, chain.table)
    for time in t:
        gamma = schedule.gamma(time).expand(ids.shape)
        x0_hat = chain.denoise(add_noise(x0, gamma.float(), torch.randn(x0.shape)), gamma.float(), ids).x0_hat(
            chain.table
        )
        f = 0.5 * torch.exp(-gamma) * schedule.slope(time) * (x0 - x0_hat).square().sum(-1)
        plain += f.flatten(1).sum(1) / len(t)
    assert float(ours.std()) < 0.85 * float(plain.std())


def test_bound_and_next_token_do_not_depend_on_batch_size_and_ignore_pad():
    model = small_model(vocab_size=13)
    rows = torch.randint(2, 13, (6, 16), generator=torch.Generator().manual_seed(0))
    rows[5, 10:] = 0
    one, all_ = (variational_bound(model, rows, batch_size=b, samples=2) for b in (1, 6))
    assert one.tokens == all_.tokens == 90
    assert math.isclose(one.nats_per_token, all_.nats_per_token, rel_tol=1e-5)
    first, second = (next_token_nll(model, rows, batch_size=b) for b in (1, 4))
    assert math.isclose(first.nats_per_token, second.nats_per_token, rel_tol=1e-6)
    alone = next_token_nll(model, rows[5:, :10])
    weighted = next_token_nll(model, rows[5:])
    assert math.isclose(alone.nats_per_token, weighted.nats_per_token, rel_tol=1e-5)


def test_untrained_next_token_head_scores_the_unigram_entropy():
    model = small_model(vocab_size=6)
    counts = torch.tensor([0, 0, 8, 4, 2, 2])
    with torch.no_grad():
        model.rounding.project.weight.zero_()
        model.rounding.project.bias.zero_()
    model.rounding.set_unigram(counts * 10_000)
    rows = torch.multinomial(counts.double(), 64 * 200, True, generator=torch.Generator().manual_seed(0)).view(200, 64)
    p = counts[2:] / counts.sum()
    report = next_token_nll(model, rows)
    assert abs(report.nats_per_token - float(-(p * p.log()).sum())) < 4 * report.standard_error
