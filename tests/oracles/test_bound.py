"""The bound under an exact posterior is the entropy itself, whatever the schedule and however the canvas moves."""

import math

import pytest
import torch

from celeris.evaluation.likelihood import next_token_nll, row_bounds, variational_bound
from celeris.noise import GumbelSchedule, LossCDFSchedule
from celeris.noise.process import evidence_scale
from celeris.rounding import Denoised
from tests.core.small import small_model
from tests.oracles.chain import Chain

# Ends where everything is decided and where nothing is known; wider ones only add variance, not information.
SCHEDULES = {"gumbel": GumbelSchedule(mu=1.0, beta=0.9, cut=1e-3), "loss_cdf": LossCDFSchedule(-2, 9, bins=30)}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
@pytest.mark.parametrize("stagger", [0.0, 2.0])
def test_chain_bound_equals_entropy(schedule, stagger):
    chain, rows, length = Chain(), 1000, 8
    ids = chain.sample(rows, length)[:, None]
    terms = row_bounds(
        lambda z, gamma, _: Denoised(chain.posterior(z, gamma).float()), chain.table, schedule, ids, torch.arange(rows),
        stagger=stagger, samples=40, seed=0,
    )  # fmt: skip
    total = terms.sum(1)
    error = float(total.std() / math.sqrt(rows))
    assert error < 0.025 * chain.entropy(length)  # else the test would show nothing
    assert abs(float(total.mean()) - chain.entropy(length)) < 3 * error


@pytest.mark.parametrize("probabilities", [[0.5, 0.5], [1 / 16] * 16, [0.7, 0.2, 0.1]], ids=len)
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_single_token_bound_equals_entropy(probabilities, schedule):
    p = torch.tensor(probabilities, dtype=torch.float64)
    table = (
        torch.nn.functional.normalize(torch.randn(len(p), 5, generator=torch.Generator().manual_seed(3)), dim=-1)
        * 5**0.5
    )
    rows = 3000
    ids = torch.multinomial(p, rows, True, generator=torch.Generator().manual_seed(0))[:, None, None]

    def denoise(z, gamma, _):
        return Denoised((evidence_scale(gamma)[..., None] * (z @ table.T) + p.log()).float())

    total = row_bounds(denoise, table, schedule, ids, torch.arange(rows), stagger=0.0, samples=24, seed=0).sum(1)
    entropy, error = float(-(p * p.log()).sum()), float(total.std() / math.sqrt(rows))
    assert abs(float(total.mean()) - entropy) < 3 * error


def test_a_worse_denoiser_has_a_worse_bound():
    """Forgetting the neighbours costs the mutual information they carry."""
    chain, rows, length = Chain(), 800, 8
    ids = chain.sample(rows, length)[:, None]

    def alone(z, gamma, _):
        return Denoised((evidence_scale(gamma)[..., None] * (z @ chain.table.T) + chain.first.log()).float())

    total = row_bounds(
        alone, chain.table, SCHEDULES["loss_cdf"], ids, torch.arange(rows), stagger=0.0, samples=24, seed=0
    )
    marginal = length * float(-(chain.first * chain.first.log()).sum())
    error = float(total.sum(1).std() / math.sqrt(rows))
    assert abs(float(total.sum(1).mean()) - marginal) < 3 * error
    assert marginal > chain.entropy(length) + 6 * error


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
