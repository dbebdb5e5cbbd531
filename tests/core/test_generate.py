"""Generation: seeds, batches, EOS, lengths, both decoders."""

import math

import pytest
import torch

from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.sampling import DDIM, Scheduler, generate, generate_autoregressive
from celeris.sampling.autoregressive import gumbel


@pytest.fixture
def model(exported) -> DiffusionLM:
    """Random weights that do have opinions, and no EOS unless a test asks for it."""
    model = DiffusionLM.from_pretrained(exported)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng))
        model.rounding.prior[model.eos_id] = -1e9
    return model


def always_eos(model: DiffusionLM) -> DiffusionLM:
    model.rounding.prior.fill_(-1e9)
    model.rounding.prior[model.eos_id] = 0.0
    return model


@pytest.mark.parametrize("solver", [DDIM(0.0), DDIM(0.6), DDIM(1.0)])
def test_row_k_of_seed_s_is_the_single_run_of_seed_s_plus_k(model, solver):
    batch = generate(model, ["ab", ""], num_samples=2, max_new_tokens=20, num_inference_steps=5, seed=3, solver=solver)
    for row, prompt in enumerate(["ab", "ab", "", ""]):
        one = generate(model, [prompt], max_new_tokens=20, num_inference_steps=5, seed=3 + row, solver=solver)
        assert one.sequences[0] == batch.sequences[row]
    assert len({tuple(s) for s in batch.sequences}) == 4
    again = generate(model, ["ab", ""], num_samples=2, max_new_tokens=20, num_inference_steps=5, seed=3, solver=solver)
    assert again.sequences == batch.sequences


@pytest.mark.parametrize("decoder", [generate, generate_autoregressive])
def test_a_prompt_alone_is_the_same_beside_a_longer_one(model, decoder):
    together = decoder(model, ["a", "dbca dbca d"], max_new_tokens=24, temperature=0.0, seed=1)
    alone = decoder(model, ["a"], max_new_tokens=24, temperature=0.0, seed=1)
    assert together.sequences[0] == alone.sequences[0]


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 10, 11, 100])
@pytest.mark.parametrize("block", [1, 4, 10])
def test_every_number_of_steps_and_block_length_fills_every_position(model, steps, block):
    out = generate(model, [""], num_samples=2, max_new_tokens=10, num_inference_steps=steps, block_length=block)
    special = {model.pad_id, model.unk_id, model.eos_id}
    assert all(len(s) == 10 and not special & set(s) for s in out.sequences)
    assert out.nfe == [steps * math.ceil(10 / block)] * 2 and out.finish_reasons == ["length"] * 2


def test_without_a_number_a_block_takes_a_step_a_token(model):
    out = generate(model, [""], max_new_tokens=15, block_length=5)
    assert out.nfe == [15]
    assert out.sequences == generate(model, [""], max_new_tokens=15, block_length=5, num_inference_steps=5).sequences


@pytest.mark.parametrize("decoder", [generate, generate_autoregressive])
def test_all_eos_is_an_empty_text_and_not_an_error(model, decoder):
    out = decoder(always_eos(model), ["", "ab"], max_new_tokens=9)
    assert out.texts == ["", ""] and out.finish_reasons == ["stop", "stop"] and out.tokens == 0


def test_a_finished_row_stops_and_its_neighbour_goes_on(model, monkeypatch):
    """Row 0 meets EOS at position 2 of its first block; what the model says behind it never appears (D7)."""
    a, b = model.tokenizer.encode("ab")
    rounds = []

    def scripted(out):
        logits = out.logits
        rounds.append(len(logits))
        ids = torch.full((len(logits), 8), a)
        if len(logits) == 2:
            ids[0] = torch.tensor([b, b, model.eos_id, a, a, model.eos_id, a, a])
        return ids

    monkeypatch.setattr(model, "round", scripted)
    out = generate(model, ["", ""], max_new_tokens=20, num_inference_steps=2)
    assert out.sequences == [[b, b], [a] * 20] and out.finish_reasons == ["stop", "length"]
    assert rounds == [2, 1, 1] and out.nfe == [2, 6]


def test_the_loop_by_hand_is_generate(model):
    scheduler = Scheduler(model, DDIM(0.0), temperature=0.7)
    scheduler.set_timesteps(6)
    out = generate(model, ["ab"], max_new_tokens=8, num_inference_steps=6, temperature=0.7, seed=5)
    from celeris.streams import generator

    context = model.encode_context(torch.tensor([model.tokenizer.encode("ab")]))
    z, x0_hat = torch.randn(1, 8, 8, generator=generator(5, "sampling")), None
    for t in scheduler.timesteps:
        out_ = model.denoise(z, t, context=context, self_cond=x0_hat)
        step = scheduler.step(out_, t, z)
        z, x0_hat = step.prev_sample, step.pred_x0
    assert model.round(out_)[0].tolist() == out.sequences[0]
    assert scheduler.timesteps[0] == 1  # pure noise, as in training


def test_callback_sees_every_step_of_every_block(model):
    seen = []
    generate(model, [""], max_new_tokens=20, num_inference_steps=3, callback_on_step_end=seen.append)
    assert [(s.block, s.step) for s in seen] == [(b, s) for b in range(3) for s in range(3)]
    assert seen[0].t == 1.0 and seen[-1].logits.shape == (1, 8, model.vocab_size)
    assert len(seen[-1].sequences[0]) == 16


def test_autoregressive_cache_equals_recomputing_everything(model):
    out = generate_autoregressive(model, ["abc"], max_new_tokens=30, temperature=0.0)
    ids = model.tokenizer.encode("abc")
    for token in out.sequences[0]:
        logits = model.next_token_logits(model.encode_context(torch.tensor([ids])))[0, -1]
        assert int(logits.argmax()) == token
        ids.append(token)


def test_autoregressive_samples_follow_the_logits(model):
    out = generate_autoregressive(model, ["abc"], num_samples=4000, max_new_tokens=1, seed=0)
    logits = model.next_token_logits(model.encode_context(torch.tensor([model.tokenizer.encode("abc")])))[0, -1]
    expected = torch.softmax(logits, -1)
    seen = torch.bincount(torch.tensor(out.sequences)[:, 0], minlength=len(expected)) / 4000
    # Four standard errors, and two draws more for tokens so rare that their count is no Gaussian.
    assert ((seen - expected).abs() < 4 * (expected * (1 - expected) / 4000).sqrt() + 2 / 4000).all()


def test_gumbel_noise_keeps_its_tail():
    assert gumbel(torch.tensor(1 - 2.0**-30, dtype=torch.float64)).item() == pytest.approx(20.79, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_inference_steps": 0}, "num_inference_steps is 0"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"block_length": 65}, "block_length is 65"),
        ({"max_new_tokens": 70}, "window of 64"),
        ({"num_samples": 0}, "num_samples is 0"),
    ],
)
def test_values_out_of_range_are_one_sentence(model, arguments, message):
    with pytest.raises(CelerisError, match=message):
        generate(model, ["ab"], **arguments)


def test_prompt_longer_than_the_window_is_refused(model):
    with pytest.raises(CelerisError, match="A prompt of 70 tokens"):
        generate(model, ["a" * 70], max_new_tokens=1)
    with pytest.raises(CelerisError, match="eta is 1.5"):
        DDIM(1.5)


@pytest.mark.parametrize("decoder", [generate, generate_autoregressive])
@pytest.mark.parametrize("prompt", ["", "ab"])
def test_the_parts_of_a_call_come_one_after_another(model, decoder, prompt):
    out = decoder(model, [prompt], max_new_tokens=24)
    assert 0 < out.prefill_seconds < out.first_block_seconds < out.seconds


def test_passes_that_are_counted_are_those_that_were_made(model, monkeypatch):
    """Of the network on one row: 24 tokens are three blocks of 8, or 24 passes, of which the first is the prefill."""
    made = []
    for name in ("context", "canvas"):
        pass_ = getattr(model.denoiser, name)
        monkeypatch.setattr(model.denoiser, name, lambda *w, p=pass_, n=name, **k: (made.append(n), p(*w, **k))[1])
    for prompt in ("", "ab"):
        for decoder, steps in ((generate, {"num_inference_steps": 4}), (generate_autoregressive, {})):
            made.clear()
            out = decoder(model, [prompt], max_new_tokens=24, **steps)
            assert (made.count("canvas"), made.count("context")) == (out.nfe[0], out.context_passes[0])
    assert out.context_passes == [24]
    model.rounding.prior[model.eos_id] = 1e9
    made.clear()
    assert generate_autoregressive(model, ["ab"], max_new_tokens=24).context_passes == [1] == [len(made)]
