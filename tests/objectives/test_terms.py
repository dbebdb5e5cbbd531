"""What all objectives have in common: named finite terms, gradients, independence of how batches are laid out."""

import pytest
import torch

from celeris.batch import Batch
from celeris.denoiser import Transformer
from celeris.embedding import TokenEmbedding
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.noise import GumbelSchedule, LossCDFSchedule
from celeris.noise.levels import LevelMixture, PerToken, Staggered, Together
from celeris.noise.prediction import V
from celeris.noise.times import LossAware
from celeris.objectives import CrossEntropy, MeanSquaredError, NextToken, Sigmoid, VariationalBound, WarmUp
from celeris.rounding import VectorHead
from tests.core.small import small_model
from tests.objectives.parts import EndsSchedule, block_batch, text

LEVELS = LevelMixture([Together(), Staggered(0, 3)], [1, 1])
COMMON = {"loss_diffusion", "loss_next_token", "loss"}
OBJECTIVES = {
    "cross_entropy": (CrossEntropy(LEVELS), COMMON),
    "weighted": (CrossEntropy(LEVELS, weighting=Sigmoid()), COMMON),
    "bound": (VariationalBound(LEVELS, reconstruction_every=2), COMMON | {"loss_reconstruction", "loss_prior"}),
    "mse": (MeanSquaredError(LEVELS, self_conditioning=0.5), COMMON | {"loss_rounding", "loss_prior"}),
    "next_token": (NextToken(), {"loss_next_token", "loss"}),
}
each = pytest.mark.parametrize("name", OBJECTIVES)


def vector_model(dim: int = 8) -> DiffusionLM:
    torch.manual_seed(0)
    trunk = Transformer(dim, 32, 2, 2, cond_dim=16, features=2)
    head = VectorHead(32, 13, dim, V())
    return DiffusionLM(13, TokenEmbedding(13, dim), LossCDFSchedule(-4, 9), trunk, 64, 8, head=head)


@each
@pytest.mark.parametrize("make", [small_model, vector_model], ids=["softmax", "vector"])
def test_every_term_is_named_finite_and_trains(name, make):
    objective, names = OBJECTIVES[name]
    model = make().train()
    model.schedule = GumbelSchedule(mu=1.0)
    out = objective(model, block_batch(text(8)), seed=1)
    fitted = set() if name == "next_token" else {"loss_schedule"}
    assert set(out.terms) == names | fitted
    assert all(torch.isfinite(term) and not term.requires_grad for term in out.terms.values())
    assert out.terms["loss"] == out.loss.detach()
    out.loss.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads and all(torch.isfinite(g).all() for g in grads)


@each
def test_the_loss_is_the_weighted_sum_of_its_terms(name):
    objective, _ = OBJECTIVES[name]
    terms = objective(small_model(), block_batch(text(8)), seed=1).terms
    weights = {"loss_next_token": 0.5} if name != "next_token" else {}
    total = sum(weights.get(key, 1.0) * value for key, value in terms.items() if key != "loss")
    assert torch.allclose(terms["loss"], total, rtol=1e-6)


@each
def test_two_half_batches_are_one_batch(name):
    """Every canvas token moves under `Together`, so a batch's mean is the mean of its halves by rows that count."""
    objective = {
        "cross_entropy": CrossEntropy(LevelMixture([Together()], [1])),
        "weighted": CrossEntropy(LevelMixture([Together()], [1]), weighting=Sigmoid()),
        "bound": VariationalBound(LevelMixture([Together()], [1]), reconstruction_every=4),
        "mse": MeanSquaredError(LevelMixture([Together()], [1]), self_conditioning=0.5),
        "next_token": NextToken(),
    }[name]
    model, ids = small_model(), text(16)
    whole = objective(model, block_batch(ids), seed=2).terms
    halves = [objective(model, block_batch(ids[k : k + 8], first=k), seed=2).terms for k in (0, 8)]
    for key, value in whole.items():
        assert torch.allclose(value, (halves[0][key] + halves[1][key]) / 2, rtol=1e-5, atol=1e-6), key


@each
@pytest.mark.parametrize("padded", [False, True])
def test_pad_changes_nothing(name, padded):
    """A row of PAD only, or PAD behind every row's text."""
    if name == "next_token" and not padded:
        return
    objective = OBJECTIVES[name][0]
    model, ids = small_model(), text(8)
    more = ids.clone()
    more[:, 12:] = 0
    batch = block_batch(more)
    out = objective(model, batch, seed=2)
    assert all(torch.isfinite(term) for term in out.terms.values())
    junk = torch.where(batch.canvas == 0, 0, batch.canvas)
    again = objective(model, Batch(more, junk, batch.start, batch.given, batch.index, True, True), seed=2)
    assert torch.allclose(out.loss, again.loss, atol=1e-5)


def test_only_the_bound_moves_the_ends_of_a_learned_path():
    """Any other loss is smaller at little noise, and would drag them there."""
    for name, (objective, _) in OBJECTIVES.items():
        model = small_model()
        model.schedule = EndsSchedule()
        objective(model, block_batch(text(8)), seed=1).loss.backward()
        assert (model.schedule.ends.grad is not None) == (name == "bound"), name


def test_next_token_ignores_noise_and_wants_whole_rows():
    model, batch = small_model(), block_batch(text(8))
    one, two = (NextToken()(model, batch, seed) for seed in (0, 1))
    assert torch.equal(one.loss, two.loss)
    context = model.encode_context(batch.context)
    logits = model.next_token_logits(context)[:, :-1]
    truth = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.context[:, 1:].flatten())
    assert torch.allclose(one.loss, truth)
    split = Batch(batch.context[:, :8], batch.canvas[:, 1:], batch.start[:, 1:], batch.given[:, 1:], batch.index)
    with pytest.raises(CelerisError, match="layout=all_blocks"):
        NextToken()(model, split, 0)


def test_a_schedule_weight_of_zero_leaves_the_schedule_alone():
    for weight in (0.0, 1.0):
        model = small_model().train()
        before = model.schedule.loss.clone()
        CrossEntropy(LEVELS, schedule_weight=weight)(model, block_batch(text(8)), seed=1)
        assert torch.equal(model.schedule.loss, before) == (weight == 0)


@pytest.mark.parametrize("rows", [4, 6])
def test_a_warm_up_switches_by_row_and_not_by_call(rows):
    model = small_model().train()
    first, then = NextToken(), CrossEntropy(LEVELS, schedule_weight=0.0)
    objective = WarmUp(first, then, rows)
    ids = text(8)
    early, late = block_batch(ids[:4]), block_batch(ids[:4], first=rows)
    for _ in range(3):
        assert torch.equal(objective(model, late, 0).loss, then(model, late, 0).loss)
        assert torch.equal(objective(model, early, 0).loss, first(model, early, 0).loss)
    both, parts = block_batch(ids), (block_batch(ids[:rows]), block_batch(ids[rows:], first=rows))
    expected = (first(model, parts[0], 0).loss * rows + then(model, parts[1], 0).loss * (8 - rows)) / 8
    out = objective(model, both, 0)
    assert torch.allclose(out.loss, expected)
    assert out.terms["loss"] == out.loss
    model.eval()
    assert torch.equal(objective(model, early, 0).loss, then(model, early, 0).loss)
    with pytest.raises(CelerisError, match="rows is 0"):
        WarmUp(first, then, 0)


def test_importance_weights_count_and_the_law_of_times_sees_the_losses():
    """A law that prefers the noisy half, weighted back: the same expectation, within the spread over batches."""
    model, batch = small_model().train(), block_batch(text(8))
    times = LossAware(bins=2, warm_up=1)
    objective = CrossEntropy(LevelMixture([PerToken()], [1], times), 0.0, next_token_weight=0.0, schedule_weight=0.0)
    losses = []
    for first in range(0, 320, 8):
        batch = block_batch(text(8), first=first)
        losses.append(float(objective(model, batch, 0).terms["loss_diffusion"]))
    assert times.mean_square[1] > 1.5 * times.mean_square[0]
    assert times.shares[1] > 0.55
    even = CrossEntropy(LevelMixture([PerToken()], [1]), 0.0, next_token_weight=0.0, schedule_weight=0.0)
    plain = [
        float(even(model, block_batch(text(8), first=first), 0).terms["loss_diffusion"]) for first in range(0, 320, 8)
    ]
    losses, plain = torch.tensor(losses), torch.tensor(plain)
    error = ((losses.var() + plain.var()) / 40).sqrt()
    assert abs(losses.mean() - plain.mean()) < 4 * error
    assert error < 0.05 * plain.mean()
