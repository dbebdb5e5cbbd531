"""Adaptive stopping: the same tokens for fewer calls where it is allowed, and an error where it is not."""

import math

import pytest
import torch

from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.sampling import DDIM, DPMSolverPP2M, Euler, Heun, Unchanged, generate
from celeris.sampling.adaptive import Watch, mean_entropy


@pytest.mark.parametrize("solver", [DDIM(0.0), Euler(), DPMSolverPP2M(), Heun()])
@pytest.mark.parametrize("stagger", [0.0, 1.0])
def test_the_tokens_are_the_same_and_calls_are_saved(exported, solver, stagger) -> None:
    """A new model says prior and evidence, so a token that has been taken only gains."""
    model = DiffusionLM.from_pretrained(exported)
    model.rounding.prior[3:] = torch.randn(model.vocab_size - 3, generator=torch.Generator().manual_seed(1))
    settings = {
        "num_samples": 8, "max_new_tokens": 24, "num_inference_steps": 24, "temperature": 0.0, "stagger": stagger,
        "solver": solver, "seed": 9,
    }  # fmt: skip
    plain = generate(model, ["ab", ""], **settings)
    early = generate(model, ["ab", ""], adaptive=Unchanged(), **settings)
    assert early.sequences == plain.sequences
    assert all(a <= b for a, b in zip(early.nfe, plain.nfe, strict=True)) and sum(early.nfe) < sum(plain.nfe)
    for row in (0, 11):
        one = generate(
            model, [["ab", ""][row // 8]], adaptive=Unchanged(), **(settings | {"num_samples": 1, "seed": 9 + row})
        )
        assert one.sequences[0] == early.sequences[row] and one.nfe[0] == early.nfe[row]


def test_both_conditions_must_hold() -> None:
    certain = torch.tensor([[[20.0, 0.0]], [[20.0, 0.0]], [[0.1, 0.0]]])
    ids, other = torch.tensor([[0], [0], [0]]), torch.tensor([[0], [1], [0]])
    watch = Watch(steps=3, entropy=0.01)
    assert watch.settled(ids, certain).tolist() == [False] * 3
    assert watch.settled(other, certain).tolist() == [False] * 3
    assert watch.settled(ids, certain).tolist() == [True, False, False]
    watch.keep_rows(torch.tensor([1, 2]))
    assert watch.settled(ids[1:], certain[1:]).tolist() == [False, False]
    assert watch.settled(ids[1:], certain[1:]).tolist() == [True, False]


def test_entropy_is_that_of_the_rounding_distribution() -> None:
    logits = torch.tensor([[[0.0, 0.0, float("-inf")], [0.0, -1e9, -1e9]]])
    assert mean_entropy(logits).item() == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize(
    ("temperature", "solver", "message"), [(0.7, DDIM(0.0), "temperature 0.7"), (0.0, DDIM(1.0), "fresh noise")]
)
def test_it_is_refused_where_it_would_change_what_is_written(model, temperature, solver, message) -> None:
    with pytest.raises(CelerisError, match=message):
        generate(model, [""], adaptive=Unchanged(), temperature=temperature, solver=solver)


@pytest.mark.parametrize("arguments", [{"steps": 1}, {"entropy": 0.0}])
def test_settings_that_make_no_sense(arguments) -> None:
    with pytest.raises(CelerisError, match="is"):
        Unchanged(**arguments)
