"""Long text: the cache, the sliding context, and what no window holds."""

import pytest
import torch

from celeris.errors import CelerisError
from celeris.sampling import Refuse, Slide, generate, generate_autoregressive
from celeris.sampling.request import padded

SETTINGS = {"block_length": 8, "num_inference_steps": 2, "seed": 4}


def seen_logits(model, prompts, **settings):
    seen: list = []
    out = generate(model, prompts, callback_on_step_end=seen.append, **settings)
    return out, seen


def test_four_blocks_with_cache_are_four_blocks_without(model, monkeypatch) -> None:
    settings = {**SETTINGS, "max_new_tokens": 32}
    out, cached = seen_logits(model, ["abc", "", "d cab d"], **settings)
    encode, history = type(model).encode_context, {}

    def from_scratch(ids, lengths=None, past=None):
        if past is None:
            history["rows"] = [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)]
        else:
            history["rows"] = [old + new for old, new in zip(history["rows"], ids.tolist(), strict=True)]
        longest = max(map(len, history["rows"]))
        padded = torch.tensor([row + [0] * (longest - len(row)) for row in history["rows"]])
        return encode(model, padded, torch.tensor([len(row) for row in history["rows"]]))

    monkeypatch.setattr(model, "encode_context", from_scratch)
    again, recomputed = seen_logits(model, ["abc", "", "d cab d"], **settings)
    assert again.sequences == out.sequences and len(cached) == len(recomputed) == 8
    for a, b in zip(cached, recomputed, strict=True):
        # The first call of a block sees the same z; later ones one in which the evidence has magnified the last bit.
        close = 1e-5 if a.step == 0 else 5e-5
        torch.testing.assert_close(a.logits.softmax(-1), b.logits.softmax(-1), atol=close, rtol=0)


@pytest.mark.parametrize("t", [1.0, 0.7, 0.4, 0.1, 0.01])
def test_a_block_reads_the_same_from_the_cache_and_from_scratch(model, t) -> None:
    """Rows of three lengths, five committed blocks: the same z gives the same probabilities at every noise level."""
    rng = torch.Generator().manual_seed(8)
    prompts = [torch.randint(3, 7, (n,), generator=rng).tolist() for n in (3, 0, 7)]
    ids, lengths = padded(prompts, model.pad_id, model.device)
    cache = model.encode_context(ids, lengths)
    for _ in range(5):
        z = torch.randn(3, 8, model.embedding.dim, generator=rng)
        ids, lengths = padded(prompts, model.pad_id, model.device)
        scratch = model.encode_context(ids, lengths)
        cached, recomputed = (model.denoise(z, t, context).logits.softmax(-1) for context in (cache, scratch))
        torch.testing.assert_close(cached, recomputed, atol=1e-5, rtol=0)
        blocks = torch.randint(3, 7, (3, 8), generator=rng)
        prompts = [row + block for row, block in zip(prompts, blocks.tolist(), strict=True)]
        cache = model.encode_context(blocks, past=cache)


def test_inside_the_window_sliding_changes_nothing(model) -> None:
    plain = generate(model, ["ab", "abcd"], max_new_tokens=60, **SETTINGS)
    sliding = generate(model, ["ab", "abcd"], max_new_tokens=60, context_overflow=Slide(), **SETTINGS)
    assert sliding.sequences == plain.sequences and sliding.slid == plain.slid == [0, 0]
    assert sliding.context_passes == plain.context_passes


@pytest.mark.parametrize("keep", [None, 1, 20, 56])
def test_beyond_it_a_row_goes_on_behind_its_last_tokens(model, keep) -> None:
    """By hand: the text of a row after a slide is what a prompt of its last `keep` tokens is continued with."""
    kept = 32 if keep is None else keep
    out = generate(model, ["abcd"], max_new_tokens=100, context_overflow=Slide(keep), **SETTINGS)
    held, slides, sizes = 4, 0, []  # context tokens before each block
    for block in range(13):
        if held + min(8, 100 - 8 * block) > 64:
            held, slides = kept, slides + 1
        sizes.append(held)
        held += 8
    assert len(out.sequences[0]) == 100 and out.slid[0] == slides > 0
    seen: list = []
    encode = model.encode_context

    def watch(ids, lengths=None, past=None):
        context = encode(ids, lengths, past)
        seen.append(int(context.lengths[0]))
        return context

    model.encode_context = watch
    again = generate(model, ["abcd"], max_new_tokens=100, context_overflow=Slide(keep), **SETTINGS)
    assert again.sequences == out.sequences and max(seen) <= 64 and seen == sizes


def test_a_row_slides_at_its_own_time(model) -> None:
    prompts = ["a", "abcd" * 13, "abc" * 30, ""]
    settings = {**SETTINGS, "max_new_tokens": 50, "context_overflow": Slide()}
    out = generate(model, prompts, **settings)
    assert len(set(out.slid)) > 1
    for row, prompt in enumerate(prompts):
        one = generate(model, [prompt], **(settings | {"seed": 4 + row}))
        assert one.sequences[0] == out.sequences[row] and one.slid[0] == out.slid[row]
        assert one.nfe[0] == out.nfe[row]


def test_a_prompt_that_fills_the_window(model) -> None:
    out = generate(model, ["a" * 63], max_new_tokens=1, **SETTINGS)
    assert len(out.sequences[0]) == 1 and out.finish_reasons == ["length"]
    with pytest.raises(CelerisError, match="A prompt of 64 tokens and max_new_tokens=1 exceed"):
        generate(model, ["a" * 64], max_new_tokens=1, context_overflow=Refuse(), **SETTINGS)
    out = generate(model, ["a" * 64, "b"], max_new_tokens=1, context_overflow=Slide(), **SETTINGS)
    assert out.slid == [1, 0] and [len(ids) for ids in out.sequences] == [1, 1]


def test_all_eos_and_empty_rows_end_at_once(model) -> None:
    model.rounding.prior.fill_(-1e9)
    model.rounding.prior[model.eos_id] = 0.0
    out = generate(model, ["", "a" * 70], max_new_tokens=500, context_overflow=Slide(), **SETTINGS)
    assert out.texts == ["", ""] and out.finish_reasons == ["stop", "stop"] and out.tokens == 0
    assert out.nfe == [2, 2] and out.tokens_per_forward == 0


@pytest.mark.parametrize(
    ("overflow", "block", "message"),
    [
        (Slide(60), 8, "keep is 60; with blocks of 8 in a window of 64 at most 56 fit"),
        (Slide(), 64, "leaves no context to slide"),
        (Refuse(), 8, "window of 64"),
    ],
)
def test_what_cannot_slide(model, overflow, block, message) -> None:
    with pytest.raises(CelerisError, match=message):
        generate(model, ["ab"], max_new_tokens=100, block_length=block, context_overflow=overflow)
    with pytest.raises(CelerisError, match="keep is 0"):
        Slide(0)


def test_the_other_decoder_refuses(model) -> None:
    with pytest.raises(CelerisError, match="window of 64"):
        generate_autoregressive(model, ["ab"], max_new_tokens=100)
