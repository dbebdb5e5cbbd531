"""The probability-flow ODE under an exact posterior returns −log p of every row, draw by draw."""

import math
from itertools import pairwise

import pytest
import torch

from celeris.errors import CelerisError
from celeris.evaluation.integrators import AdaptiveHeun, Heun
from celeris.evaluation.ode import flow_likelihood, row_flow
from celeris.noise import LinearSchedule
from tests.core.small import small_model
from tests.oracles.chain import Chain
from tests.oracles.schedules import NAMES, shipped
from tests.oracles.test_bound import ALPHABETS, ENTROPIES, gap_from_prior


def flow(chain: Chain, ids, low: float, high: float, integrator, probes: int = 0, seed: int = 0):
    return row_flow(
        chain.denoise, chain.table, low, high, ids, torch.arange(len(ids)), integrator=integrator, probes=probes,
        seed=seed,
    )  # fmt: skip


def ends(schedule) -> tuple[float, float]:
    low, high = schedule.gamma(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
    return low, high


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("name", NAMES)
def test_single_token_likelihood_equals_its_probability(alphabet, name):
    chain = Chain.memoryless(ALPHABETS[alphabet])
    ids = chain.sample(100, 1, seed=0)[:, None]
    low, high = ends(shipped(name))
    terms, _ = flow(chain, ids, low, high, Heun(round(5 * (high - low))))
    total = terms.sum(1)
    error = float(total.std() / math.sqrt(len(ids)))
    assert abs(float(total.mean()) - ENTROPIES[alphabet]) < 3 * error + 0.01
    assert torch.allclose(total, chain.nats(ids[:, 0]), atol=0.15)  # each draw, up to the steps' error
    assert abs(float((total - chain.nats(ids[:, 0])).mean())) < 0.01


def test_chain_likelihood_equals_its_probability():
    """Rows of four of eight symbols: positions inform each other, and the flow knows it."""
    chain = Chain(vocab_size=8, sharpness=2.5)
    ids = chain.sample(30, 4)[:, None]
    terms, _ = flow(chain, ids, -4.0, 9.0, Heun(64))
    excess = terms.sum(1) - chain.nats(ids[:, 0])
    assert abs(float(excess.mean())) < 0.03 and float(excess.abs().max()) < 0.3
    independent = 4 * float(-(chain.first * chain.first.log()).sum())
    assert float(terms.sum(1).mean()) < independent - 1


def test_hutchinson_is_unbiased_and_its_rows_are_their_own():
    """With probes the mean over draws of them is the exact divergence's; and rows do not share random numbers."""
    chain = Chain(vocab_size=8, dim=4)
    ids = chain.sample(1, 3).expand(300, 3)[:, None]
    exact, _ = flow(chain, ids, -3.0, 8.0, Heun(12))
    noisy, _ = flow(chain, ids, -3.0, 8.0, Heun(12), probes=1)
    more, _ = flow(chain, ids, -3.0, 8.0, Heun(12), probes=4)
    off, off_more = (x[:, 0] - exact[:, 0] for x in (noisy, more))  # the same z_0 in each
    assert float(off.std()) > 0
    assert abs(float(off.mean())) < 3.5 * float(off.std()) / math.sqrt(len(ids))
    assert float(off_more.std()) < 0.65 * float(off.std())  # four probes: half the spread


def test_a_path_that_ends_early_costs_exactly_the_divergence_from_the_prior():
    chain, rows = Chain.memoryless(ALPHABETS["3"]), 1000
    ids = chain.sample(rows, 1, seed=0)[:, None]
    terms, _ = flow(chain, ids, -3.0, 0.5, Heun(24))
    excess = terms.sum(1) - chain.nats(ids[:, 0])
    error = float(excess.std() / math.sqrt(rows))
    gap = gap_from_prior(chain, 0.5)
    assert gap > 5 * error
    assert abs(float(excess.mean()) - gap) < 3 * error


def test_a_path_that_starts_late_leaves_the_rest_to_the_reconstruction():
    chain = Chain.memoryless(ALPHABETS["3"])
    ids = chain.sample(200, 1, seed=0)[:, None]
    terms, _ = flow(chain, ids, 1.0, 10.0, Heun(64))
    assert float(terms[:, 1].mean()) > 0.2
    assert float((terms.sum(1) - chain.nats(ids[:, 0])).abs().max()) < 0.1


def test_heun_is_of_second_order_and_the_adaptive_steps_agree():
    chain = Chain(vocab_size=4, dim=3)
    ids = chain.sample(30, 2)[:, None]
    fine = flow(chain, ids, -1.0, 8.0, Heun(240))[0].sum(1)
    miss = []
    for steps in (20, 40, 80):
        terms, evaluations = flow(chain, ids, -1.0, 8.0, Heun(steps))
        miss.append(float((terms.sum(1) - fine).square().mean().sqrt()))
        assert (evaluations == 2 * steps).all()
    for coarse, finer in pairwise(miss):
        assert 1.6 < math.log2(coarse / finer) < 2.5
    adaptive, evaluations = flow(chain, ids, -1.0, 8.0, AdaptiveHeun(2e-3))
    assert float((adaptive.sum(1) - fine).abs().max()) < 0.03
    assert evaluations.min() > 20 and len(evaluations.unique()) > 1  # every row at its own pace


def test_one_and_all_rows_agree_and_pad_is_ignored():
    model = small_model(vocab_size=13)
    rows = torch.randint(2, 13, (4, 16), generator=torch.Generator().manual_seed(0))
    rows[3, 10:] = 0
    for integrator in (Heun(4), AdaptiveHeun(0.1)):
        one, all_ = (flow_likelihood(model, rows, integrator=integrator, batch_size=b) for b in (1, 4))
        assert one.tokens == all_.tokens == 58
        assert one.evaluations == all_.evaluations
        assert math.isclose(one.nats_per_token, all_.nats_per_token, rel_tol=1e-5)
        assert math.isclose(one.standard_error, all_.standard_error, rel_tol=1e-3)
    assert flow_likelihood(model, rows, integrator=Heun(4), seed=1).nats_per_token != all_.nats_per_token
    assert all(parameter.grad is None for parameter in model.parameters())


def test_mistakes_are_named():
    model = small_model(vocab_size=13)
    with pytest.raises(CelerisError, match="blocks of 7"):
        flow_likelihood(model, torch.ones(1, 16, dtype=torch.long), block_length=7)
    with pytest.raises(CelerisError, match="steps=0"):
        Heun(0)
    with pytest.raises(CelerisError, match="tolerance=0"):
        AdaptiveHeun(0.0)
    chain = Chain()
    with pytest.raises(CelerisError, match="4 evaluations"):
        flow(chain, chain.sample(2, 2)[:, None], *ends(LinearSchedule(-3.0, 8.0)), AdaptiveHeun(1e-4, limit=4))
