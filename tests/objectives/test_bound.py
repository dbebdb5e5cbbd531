"""The training loss `VariationalBound` is the bound that is evaluated, and the entropy under an exact posterior."""

import math

import pytest
import torch

from celeris.errors import CelerisError
from celeris.evaluation.likelihood import variational_bound
from celeris.noise import GumbelSchedule, LossCDFSchedule
from celeris.noise.levels import LevelMixture, PerToken, Staggered, Together
from celeris.objectives import VariationalBound
from tests.core.small import small_model
from tests.objectives.parts import EndsSchedule, SingleToken, block_batch, text

LEVELS = LevelMixture([Together()], [1])
PARTS = ("loss_diffusion", "loss_reconstruction", "loss_prior")


def parts_of(objective, model, ids, batches, seed=0):
    """(batches, 3) parts of the bound; batch k has the row numbers that follow those of batch k − 1."""
    with torch.no_grad():
        outs = [objective(model, block_batch(ids, first=len(ids) * k), seed) for k in range(batches)]
    return torch.tensor([[float(out.terms[name]) for name in PARTS] for out in outs], dtype=torch.float64)


@pytest.mark.parametrize(
    "probabilities", [[0.5, 0.5], [1 / 16] * 16, [0.7, 0.2, 0.1]], ids=["two", "sixteen", "skewed"]
)
@pytest.mark.parametrize("law", [Together(), PerToken(), Staggered(0, 3)], ids=["together", "per_token", "staggered"])
def test_it_is_the_entropy_under_an_exact_posterior(probabilities, law):
    """The tokens are independent, so independent levels are a path too."""
    p = torch.tensor(probabilities, dtype=torch.float64)
    model = SingleToken(p, 5, GumbelSchedule(mu=1.0, beta=0.9, cut=1e-3)).eval()
    objective = VariationalBound(LevelMixture([law], [1]), self_conditioning=0.0, next_token_weight=0.0)
    ids = torch.multinomial(p, 400 * 16, True, generator=torch.Generator().manual_seed(0)).view(400, 16)
    parts = parts_of(objective, model, ids, 40)
    # The text is the same in every batch: its own entropy is what the bound must reach, not that of p.
    share = torch.bincount(ids.flatten(), minlength=len(p)) / ids.numel()
    entropy, error = float(-(share * p.log()).sum()), float(parts.sum(1).std() / math.sqrt(len(parts)))
    assert error < 0.03
    assert abs(float(parts.sum(1).mean()) - entropy) < 3.5 * error
    assert float(parts[:, 2].mean()) > 0


@pytest.mark.parametrize("self_conditioning", [False, True])
def test_its_expectation_is_the_evaluated_bound(self_conditioning):
    """Rows pass the denoiser twice here exactly when evaluation lets them."""
    model = small_model(self_conditioning=self_conditioning)
    model.schedule = LossCDFSchedule(-3, 7)
    ids = text(32)
    objective = VariationalBound(LevelMixture([Staggered(2.0, 2.0)], [1]), self_conditioning=1.0, next_token_weight=0.0)
    parts = parts_of(objective, model, ids, 24)
    report = variational_bound(model, ids, stagger=2.0, samples=8)
    spread = parts.std(0) / math.sqrt(len(parts))
    evaluated = (report.diffusion, report.reconstruction, report.prior)
    for name, mean, error, truth in zip(PARTS, parts.mean(0), spread, evaluated, strict=True):
        # Evaluation draws reconstruction once per row, so it is noisier there than here.
        assert abs(float(mean) - truth) < 4 * float(error) + 0.04 * truth, name
    assert float(spread.sum()) < 0.15 * sum(evaluated)


def test_every_part_moves_the_ends_of_a_learned_path():
    """Reconstruction moves the data end only, the prior the noise end only, each by its own derivative."""
    model = small_model()
    objective = VariationalBound(LEVELS, 0.0, next_token_weight=0.0, reconstruction_every=2)

    def own_terms(low):
        model.schedule = EndsSchedule(low, 6.0)
        batch = block_batch(text(16))
        noise = objective.draw(model, batch, 0)
        context = model.encode_context(batch.context)
        return objective.own_terms(model, batch, objective._read(model, batch, noise, context), 0)

    terms = own_terms(1.0)
    slopes = [torch.autograd.grad(term.value, model.schedule.ends, retain_graph=True)[0] for term in terms.values()]
    assert list(terms) == ["loss_reconstruction", "loss_prior"]
    assert slopes[0][1] == 0 and slopes[1][0] == 0
    reconstruction = [float(own_terms(low)["loss_reconstruction"].value) for low in (0.98, 1.02)]
    assert math.isclose(float(slopes[0][0]), (reconstruction[1] - reconstruction[0]) / 0.04, rel_tol=0.02)
    # d/dgamma_1 of D/2·log(1 + exp(−gamma_1)), D = 8
    assert math.isclose(float(slopes[1][1]), -4 * float(torch.sigmoid(torch.tensor(-6.0))), rel_tol=1e-3)


def test_the_ends_get_the_derivative_of_the_integral():
    """Under an exact posterior, and where z_1 is noise, moving an end does not change the sum: its gradient is zero."""
    p = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    model = SingleToken(p, 5, EndsSchedule(-2.0, 9.0)).eval()
    objective = VariationalBound(LEVELS, self_conditioning=0.0, reconstruction_every=2)
    ids = torch.multinomial(p, 6400, True, generator=torch.Generator().manual_seed(0)).view(400, 16)
    gradients = []
    for k in range(30):
        loss = objective(model, block_batch(ids, first=400 * k), 0).loss
        gradients.append(torch.autograd.grad(loss, model.schedule.ends)[0])
    mean, error = torch.stack(gradients).mean(0), torch.stack(gradients).std(0) / math.sqrt(30)
    assert (error < 0.03).all()
    assert (mean.abs() < 4 * error).all()


def test_one_row_of_every_group_is_reconstructed_wherever_it_comes():
    objective = VariationalBound(LEVELS, reconstruction_every=4)
    model, ids = small_model(), text(40)
    u = objective.draw(model, block_batch(ids), 0).u
    at_data = (u == 0).all(-1).all(-1)
    assert (at_data.view(10, 4).sum(1) == 1).all()
    assert len(set(at_data.view(10, 4).int().argmax(1).tolist())) > 1
    assert torch.equal(objective.draw(model, block_batch(ids[:7], first=13), 0).u, u[13:20])


def test_a_bound_of_reconstruction_alone_is_refused():
    with pytest.raises(CelerisError, match="reconstruction_every is 1"):
        VariationalBound(LEVELS, reconstruction_every=1)
