"""Infilling: what is given stays, blanks are filled, and a blank at the end is ordinary generation."""

import random

import pytest
import torch

from celeris.errors import CelerisError
from celeris.sampling import Blank, fill_in_the_middle, generate, infill, parse_template

FAST = {"num_inference_steps": 2, "seed": 5}


def test_blanks_of_three_and_five(model) -> None:
    """D11: "A ____ B ____ C" with blank lengths 3 and 5: given tokens identical, 8 new tokens."""
    out = infill(model, ["a ____ b ____ c"], blank_length=[3, 5], **FAST)
    (ids,) = out.sequences
    encode = model.tokenizer.encode
    assert ids[:2] == encode("a ") and ids[5:8] == encode(" b ") and ids[13:] == encode(" c") and len(ids) == 15
    assert [len(f) for f in out.filled[0]] == [3, 5] and out.tokens == 8
    assert out.prompts == ["a ____ b ____ c"] and out.whole_texts == out.texts == [model.tokenizer.decode(ids)]
    assert out.texts[0] == f"a {out.fillings[0][0]} b {out.fillings[0][1]} c"
    assert out.nfe == [2] and out.context_passes == [1] and out.finish_reasons == ["length"]


def test_given_tokens_are_identical_in_random_masks(model) -> None:
    rng = random.Random(0)
    words = [token for token in range(model.vocab_size) if token not in model.forbidden]
    templates, masks = [], []
    for _ in range(200):
        ids = rng.choices(words, k=rng.randint(1, 24))
        blank = [rng.random() < 0.4 for _ in ids]
        blank[rng.randrange(len(ids))] = True
        templates.append([Blank(1) if b else [token] for token, b in zip(ids, blank, strict=True)])
        masks.append((ids, blank))
    out = infill(model, templates, **FAST)
    for (ids, blank), found in zip(masks, out.sequences, strict=True):
        assert len(found) == len(ids)
        assert all(b or a == c for a, b, c in zip(ids, blank, found, strict=True))
        assert not {model.pad_id, model.unk_id} & {c for c, b in zip(found, blank, strict=True) if b}


@pytest.mark.parametrize("text", ["____ab", "ab____", "a________b", "____", "________"])
def test_a_blank_anywhere(model, text) -> None:
    out = infill(model, [text], blank_length=4, **FAST)
    given = text.replace("____", "")
    filled = "".join(out.fillings[0])
    assert len(out.texts[0]) == len(given) + 4 * text.count("____") and len(filled) == 4 * text.count("____")
    rest = text
    for filling in out.fillings[0]:
        rest = rest.replace("____", filling, 1)
    assert out.texts[0] == rest


@pytest.mark.parametrize("prefix", ["", "abc d"])
def test_one_blank_at_the_end_is_generate(model, prefix) -> None:
    settings = {"num_samples": 3, "num_inference_steps": 4, "temperature": 0.8, "seed": 2}
    out = infill(model, [[prefix, Blank(9)]], **settings)
    plain = generate(model, [prefix], max_new_tokens=9, block_length=9, **settings)
    assert [row[0] for row in out.filled] == plain.sequences and out.texts == plain.whole_texts


def test_what_follows_a_blank_is_read(model) -> None:
    """The same noise and context; only the suffix differs."""
    seen: list = []
    for suffix in ("dddd", "bbbb", "dddd"):
        infill(model, [["a", Blank(8), suffix]], callback_on_step_end=seen.append, **FAST)
    first, other, again = (step.logits[:, :8].softmax(-1) for step in seen if step.step == 0)
    assert torch.equal(first, again) and float((first - other).abs().max()) > 1e-3


def test_eos_ends_the_text_in_the_last_blank_only(model) -> None:
    model.rounding.prior.fill_(-1e9)
    model.rounding.prior[model.eos_id] = 0.0
    model.rounding.prior[model.tokenizer.encode("a")[0]] = -1e6
    out = infill(model, ["b____b____", "b____b"], blank_length=3, **FAST)
    assert out.texts == ["baaab", "baaab"] and out.finish_reasons == ["stop", "length"]
    assert out.fillings == [["aaa", ""], ["aaa"]]


def test_a_row_does_not_depend_on_its_neighbours(model) -> None:
    templates = ["a____b", "____", ["abc d", Blank(2, 5), "d", Blank(1, 2)], "abcd____a____dd", "____ab"]
    settings = {"num_samples": 2, "blank_length": 6, "num_inference_steps": 3}
    out = infill(model, templates, **settings, seed=1)
    for row in range(10):
        one = infill(model, [templates[row // 2]], **(settings | {"num_samples": 1}), seed=1 + row)
        assert one.sequences[0] == out.sequences[row] and one.nfe[0] == out.nfe[row]
        assert one.scores[0] == pytest.approx(out.scores[row], abs=1e-4)


@torch.no_grad()
def test_of_several_lengths_the_most_likely_is_kept(model) -> None:
    template = ["ab", Blank(2, 6), "d."]
    out = infill(model, [template], **FAST)
    scores: dict = {}
    for length in range(2, 7):
        one = infill(model, [["ab", Blank(length), "d."]], **FAST)
        assert one.scores == [None]
        logits = model.next_token_logits(model.encode_context(torch.tensor([one.sequences[0]])))
        log_p = torch.log_softmax(logits, -1)[0]
        ids = one.sequences[0]
        scores[tuple(ids)] = sum(float(log_p[k - 1, ids[k]]) for k in range(2, len(ids))) / (len(ids) - 2)
    best = max(scores, key=scores.__getitem__)
    assert tuple(out.sequences[0]) == best and out.scores[0] == pytest.approx(scores[best], abs=1e-5)
    assert out.nfe == [10] and out.context_passes == [10]


def ending(model, after: int):
    """The model taught blanks that are too long; it writes EOS wherever `after` positions are passed."""
    model.info = {"data_spec": {"layout": {"surplus": 4}}}
    predict = model.predict

    def predicted(*arguments, **more):
        out = predict(*arguments, **more)
        logits = out.logits.clone()
        logits[..., model.eos_id] = -1e9
        logits[..., after:, model.eos_id] = 1e9
        return out._replace(logits=logits)

    model.predict = predicted
    return model


def test_a_model_taught_to_end_blanks_gets_one_canvas_of_the_longest(model) -> None:
    out = infill(ending(model, 3), [["ab", Blank(2, 6), "d."], ["ab", Blank(4, 6), "d."]], **FAST)
    assert [len(row[0]) for row in out.filled] == [3, 4]  # not before the shortest
    assert out.nfe == [2, 2] and out.context_passes == [1, 1] and out.scores == [None, None]
    for ids, (filled,) in zip(out.sequences, out.filled, strict=True):
        assert ids == model.tokenizer.encode("ab") + filled + model.tokenizer.encode("d.")
    assert out.texts == [model.tokenizer.decode(ids) for ids in out.sequences] and out.tokens == 7


def test_every_blank_ends_by_itself_and_what_is_given_stays(model) -> None:
    out = infill(ending(model, 1), [["a", Blank(1, 40), "bc", Blank(2, 9), Blank(3), "d", Blank(1, 3)]], **FAST)
    (ids,), (filled,) = out.sequences, out.filled
    assert [len(part) for part in filled] == [1, 2, 3, 1] and out.finish_reasons == ["stop"]  # one length: no EOS
    encode = model.tokenizer.encode
    assert ids == encode("a") + filled[0] + encode("bc") + filled[1] + filled[2] + encode("d") + filled[3]
    assert model.eos_id not in ids
    model.has_next_token_head = False  # no length is judged
    whole = infill(model, [[Blank(2)], [Blank(1, 2)]], **FAST)
    assert [len(row[0]) for row in whole.filled] == [1, 1]  # nothing follows: EOS may end the text


def test_fill_in_the_middle() -> None:
    assert fill_in_the_middle("def f(", "): pass", 5) == ["def f(", Blank(5), "): pass"]
    assert fill_in_the_middle("", "x", (2, 3)) == [Blank(2, 3), "x"]
    assert parse_template("A ____ B____", [3, [1, 2]]) == ["A ", Blank(3), " B", Blank(1, 2)]
    assert parse_template("a<>b", 2, "<>") == ["a", Blank(2), "b"]


@pytest.mark.parametrize(
    ("template", "arguments", "message"),
    [
        ("no blank", {}, "no blank in 'no blank'"),
        (["ab", "c"], {}, "no blank"),
        ("a____b____", {"blank_length": [3]}, "1 lengths and the text has 2 blanks"),
        ("a____", {"blank_length": 0}, "0 … 0 tokens"),
        ("a____", {"blank_length": [[5, 3]]}, "5 … 3 tokens"),
        ("a____", {"blank_length": [[1, 2, 3]]}, "number, or"),
        ("a____", {"blank_length": 64}, "up to 65 tokens"),
        (["a", Blank(1, 30), "b", Blank(1, 3)], {}, "90 combinations"),
        ("a", {"blank": ""}, "blank is empty"),
    ],
)
def test_templates_that_cannot_be_filled(model, template, arguments, message) -> None:
    with pytest.raises(CelerisError, match=message):
        infill(model, [template], **arguments, **FAST)
    with pytest.raises(CelerisError, match="put it into a list"):
        infill(model, "a____")


def test_ranges_need_a_judge(model) -> None:
    model.has_next_token_head = False
    with pytest.raises(CelerisError, match="next-token head"):
        infill(model, [[Blank(1, 2)]], **FAST)
