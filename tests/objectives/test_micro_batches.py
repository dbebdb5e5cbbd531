"""However a step is cut into micro-batches, its loss and its gradient are those of one batch."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from celeris.baselines import LlamaNextToken, MaskedDiffusion
from celeris.batch import Batch
from celeris.data.layouts import AllBlocks, Documents
from celeris.language_model import LanguageModel
from celeris.noise import GumbelSchedule
from celeris.noise.levels import LevelMixture, Masked, PerToken, Staggered, Together
from celeris.noise.online import OnlineFit
from celeris.noise.times import LossAware
from celeris.objectives import CrossEntropy, MeanSquaredError, NextToken, Sigmoid, VariationalBound, WarmUp
from tests.baselines.small import small_llama, small_masked
from tests.core.small import small_model

ALL = LevelMixture([Together(), PerToken(), Staggered(0.5, 4), Masked()], [1, 1, 1, 1])
OBJECTIVES = {
    "cross_entropy": CrossEntropy(ALL),
    "loss_aware": CrossEntropy(LevelMixture([Together(), PerToken()], [1, 1], LossAware(bins=4, warm_up=1))),
    "weighted": CrossEntropy(ALL, weighting=Sigmoid()),
    "bound": VariationalBound(ALL, reconstruction_every=2),
    "mse": MeanSquaredError(ALL, self_conditioning=0.5, anchor_weight=0.3),
    "next_token": NextToken(),
    "warm_up": WarmUp(NextToken(), CrossEntropy(ALL), rows=5),
    "llama": LlamaNextToken(),
    "masked": MaskedDiffusion(),
}


def ragged(name: str) -> Batch:
    """Eight rows of 3 to 16 tokens with given positions; nothing counts equally in two of them."""
    ids = torch.randint(3, 11, (8, 16), generator=torch.Generator().manual_seed(1))
    for row, length in enumerate((3, 16, 9, 5, 16, 12, 4, 8)):
        ids[row, length:] = 0
    layout = AllBlocks(16) if name == "masked" else AllBlocks(8, p_given=0.0 if name == "llama" else 0.5)
    if name in ("cross_entropy", "bound"):
        layout = Documents(4, p_given=0.5, eos_id=1)
    return layout(ids, torch.arange(8), seed=3, pad_id=0)


def model_of(name: str) -> LanguageModel:
    if name in ("llama", "masked"):
        return small_llama() if name == "llama" else small_masked()
    model = small_model()
    model.schedule = GumbelSchedule(mu=1.0)
    return model


def begun(name: str) -> tuple[Any, LanguageModel]:
    """Objective and model of a step that has begun: what is fitted online does not move before its end."""
    objective, model = deepcopy(OBJECTIVES[name]), model_of(name).train()
    for part in [*objective.modules(), *model.modules()]:
        if isinstance(part, OnlineFit):
            part.hold()
    return objective, model


def gradient(name: str, batches: list[Batch]) -> tuple[float, list[Tensor]]:
    """Loss of the step and its gradient, of `batches` that are all that this rank reads."""
    objective, model = begun(name)
    counts = [objective.counts(model, batch, 5) for batch in batches]
    means = {kind: sum(part[kind].sum() for part in counts) / len(batches) for kind in counts[0]}
    loss = sum(objective(model, replace(batch, means=means), 5).loss for batch in batches) / len(batches)
    loss.backward()
    return float(loss.detach()), [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_micro_batches_of_any_size_are_their_step(name: str) -> None:
    whole = ragged(name)
    loss, slopes = gradient(name, [whole])
    objective, model = begun(name)
    alone = objective(model, whole, 5).loss
    assert float(alone.detach()) == pytest.approx(loss, rel=1e-5)  # one batch is its own step
    for size in (1, 2, 4):
        part, others = gradient(name, [whole.rows(torch.arange(k, k + size)) for k in range(0, 8, size)])
        assert part == pytest.approx(loss, rel=2e-5)
        for a, b in zip(others, slopes, strict=True):
            torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)


def test_without_the_counts_of_the_step_it_would_not_be() -> None:
    whole, objective = ragged("cross_entropy"), OBJECTIVES["cross_entropy"]
    model = model_of("cross_entropy").train()
    parts = [float(objective(model, whole.rows(torch.arange(k, k + 2)), 5).loss.detach()) for k in range(0, 8, 2)]
    assert abs(sum(parts) / 4 - float(objective(model, whole, 5).loss.detach())) > 1e-3
