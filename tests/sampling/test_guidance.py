"""Wrappers round a denoiser: what they make of its answers, what they cost, and that each changes the text."""

import pytest
import torch

from celeris.errors import CelerisError
from celeris.rounding import Denoised
from celeris.sampling import (
    DDIM,
    Clamp,
    ClassifierFreeGuidance,
    Guided,
    Heun,
    SelfConditioningGuidance,
    TopP,
    generate,
)
from celeris.sampling.guidance import extrapolate


class Counting:
    """A model whose calls are counted from outside."""

    def __init__(self, model) -> None:
        self.calls, ask = 0, model.denoise

        def denoise(*arguments, **named):
            self.calls += 1
            return ask(*arguments, **named)

        model.denoise = denoise


def state(model, rows: int = 2):
    rng = torch.Generator().manual_seed(3)
    ids = torch.tensor([model.tokenizer.encode("abc")] * rows)
    z, x0_hat = (torch.randn(rows, 8, 8, generator=rng) for _ in range(2))
    return z, 0.6, model.encode_context(ids), x0_hat


def test_classifier_free_guidance_extrapolates_from_the_empty_context(model):
    z, t, context, x0_hat = state(model)
    with_it = model.denoise(z, t, context, x0_hat).logits
    without = model.denoise(z, t, None, x0_hat).logits
    for scale, calls in ((0.0, 2), (1.0, 1), (2.5, 2)):
        guided = Guided(model, [ClassifierFreeGuidance(scale)])
        out = guided.denoise(z, t, context, x0_hat)
        torch.testing.assert_close(out.logits, without + scale * (with_it - without), rtol=1e-4, atol=1e-3)
        assert guided.calls == calls
    nothing = Guided(model, [ClassifierFreeGuidance(2.5)])
    assert torch.equal(nothing.denoise(z, t, None, x0_hat).logits, without) and nothing.calls == 1


def test_a_row_without_context_is_left_alone_beside_one_with(model):
    ids = torch.tensor([model.tokenizer.encode("abc")] * 2)
    context = model.encode_context(ids, torch.tensor([3, 0]))
    z, t, _, x0_hat = state(model)
    out = Guided(model, [ClassifierFreeGuidance(3.0)]).denoise(z, t, context, x0_hat).logits
    plain = model.denoise(z, t, context, x0_hat).logits
    assert torch.equal(out[1], plain[1]) and not torch.allclose(out[0], plain[0])


def test_self_conditioning_guidance_extrapolates_from_no_estimate(model):
    z, t, context, x0_hat = state(model)
    with_it, without = (model.denoise(z, t, context, s).logits for s in (x0_hat, None))
    guided = Guided(model, [SelfConditioningGuidance(3.0)])
    out = guided.denoise(z, t, context, x0_hat).logits
    torch.testing.assert_close(out, without + 3 * (with_it - without), rtol=1e-4, atol=1e-3)
    assert guided.calls == 2
    guided.denoise(z, t, context, None)
    assert guided.calls == 3
    model.self_conditioning = False
    with pytest.raises(CelerisError, match="self_cond_guidance is 3 and this checkpoint takes no self-conditioning"):
        guided.denoise(z, t, context, None)


class Says:
    """A denoiser with one answer."""

    stagger = 0.0

    def __init__(self, p, vector=None) -> None:
        logits = torch.tensor(p).log().expand(1, 2, len(p))
        self.answer = Denoised(logits, vector)
        self.embedding = type("Embedding", (), {"table": torch.eye(len(p))})()

    def denoise(self, z, t, context=None, self_cond=None, stagger=None):
        return self.answer


@pytest.mark.parametrize(("p", "kept"), [(1.0, 4), (0.95, 4), (0.9, 3), (0.75, 2), (0.5, 1), (0.01, 1)])
def test_top_p_keeps_the_fewest_tokens_that_reach_p(p, kept):
    model = Says([0.1, 0.5, 0.15, 0.25])
    out = Guided(model, [TopP(p - 1e-6 if p < 1 else p)]).denoise(torch.zeros(1, 2, 4), 0.5)
    expected = torch.tensor([0.1, 0.5, 0.15, 0.25])
    expected[expected.argsort(descending=True)[kept:]] = 0
    torch.testing.assert_close(out.x0_hat(torch.eye(4))[0, 0], expected / expected.sum())


def test_clamping_rounds_positions_close_to_the_data_at_any_temperature():
    model = Says([0.1, 0.5, 0.15, 0.25], vector=torch.full((1, 2, 4), 9.0))
    guided = Guided(model, [Clamp(0.3)])
    z = torch.zeros(1, 2, 4)
    near, far = guided.denoise(z, 0.3), guided.denoise(z, 0.31)
    for temperature in (0.0, 0.5, 1.0):
        assert torch.equal(near.x0_hat(torch.eye(4), temperature)[0], torch.eye(4)[[1, 1]])
    assert torch.equal(far.logits, model.answer.logits) and torch.equal(far.vector, model.answer.vector)
    # With stagger 3 the first of two positions stands at u = 0 and the second at u = 1 when the clock shows ¼ … ¾.
    staggered = guided.denoise(z, 0.5, stagger=3.0)
    assert torch.isinf(staggered.logits).sum(-1).tolist() == [[3, 0]]


def test_guidance_survives_tokens_that_were_cut():
    infinity = float("inf")
    with_it = Denoised(torch.tensor([[0.0, 1.0, -infinity, -infinity]]))
    without = Denoised(torch.tensor([[1.0, -infinity, 0.0, -infinity]]))
    for scale in (0.0, 0.5, 3.0):
        logits = extrapolate(with_it, without, scale).logits
        assert logits[0, 1:].tolist() == [1.0, -infinity, -infinity] and logits[0, 0] == 1 - scale


def test_wrappers_compose_in_any_order_and_their_calls_multiply(model):
    z, t, context, x0_hat = state(model)
    wrappers = [ClassifierFreeGuidance(2.0), SelfConditioningGuidance(2.0), TopP(0.8), Clamp(0.5)]
    for turn in range(4):
        guided = Guided(model, wrappers[turn:] + wrappers[:turn])
        logits = guided.denoise(z, t, context, x0_hat).logits
        assert guided.calls == 4
        assert not torch.isnan(logits).any() and torch.isfinite(logits).any(-1).all()
    inner = Guided(Guided(model, [ClassifierFreeGuidance(2.0)]))  # what it wraps is a denoiser like any other
    inner.denoise(z, t, context, x0_hat)
    assert inner.calls == 1 and inner.model.calls == 2


@pytest.mark.parametrize(
    ("settings", "per_block"),
    [
        ({}, 6),
        ({"solver": Heun()}, 11),
        ({"guidance_scale": 2.0}, 12),
        ({"self_cond_guidance": 2.0}, 6 + 5),
        ({"guidance_scale": 2.0, "self_cond_guidance": 2.0, "solver": Heun()}, 2 * (11 + 10)),
        ({"top_p": 0.5, "clamp_below": 0.5}, 6),
        ({"guidance": [ClassifierFreeGuidance(2.0)]}, 12),
    ],
    ids=["plain", "heun", "guidance", "self", "all", "cuts", "own"],
)
def test_nfe_is_what_a_counting_denoiser_counts(model, settings, per_block):
    counting = Counting(model)
    out = generate(model, ["ab"], max_new_tokens=16, num_inference_steps=6, **settings)
    assert out.nfe == [counting.calls] == [2 * per_block]


def test_every_setting_changes_the_text(model):
    def text(**settings):
        settings = {"solver": DDIM(0.5), "num_inference_steps": 8, "max_new_tokens": 32} | settings
        return tuple(map(tuple, generate(model, ["abc d"], num_samples=3, **settings).sequences))

    plain = text()
    off = {"guidance_scale": 1.0, "self_cond_guidance": 1.0, "top_p": 1.0, "clamp_below": None, "guidance": []}
    assert text(**off) == plain
    for settings in (
        {"guidance_scale": 3.0},
        {"self_cond_guidance": 3.0},
        {"top_p": 0.3},
        {"clamp_below": 0.7},
        {"temperature": 0.5},
        {"guidance": [TopP(0.3)]},
    ):
        assert text(**settings) != plain, settings


def test_clamping_always_is_temperature_0(model):
    settings = {"prompts": ["ab"], "max_new_tokens": 16, "num_inference_steps": 6}
    assert (
        generate(model, clamp_below=1.0, **settings).sequences == generate(model, temperature=0.0, **settings).sequences
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"guidance_scale": -1.0}, "guidance_scale is -1; it must be ≥ 0"),
        ({"self_cond_guidance": -2.0}, "self_cond_guidance is -2; it must be ≥ 0"),
        ({"top_p": 0.0}, "top_p is 0; it must lie in"),
        ({"top_p": 1.5}, "top_p is 1.5; it must lie in"),
        ({"clamp_below": 0.0}, "clamp_below is 0; it must lie in"),
    ],
)
def test_values_out_of_range_are_one_sentence(model, arguments, message):
    with pytest.raises(CelerisError, match=message):
        generate(model, ["ab"], **arguments)
