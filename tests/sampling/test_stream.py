"""Pieces of text: append-only, whole characters, and together what `generate` returns."""

import random

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from celeris.errors import CelerisError
from celeris.sampling import generate, stream
from celeris.sampling.row_text import RowText
from celeris.sampling.stop_strings import first_stop, waiting
from celeris.tokenizer import TextTokenizer

HARD = "é日😀👩‍👩‍👧🇫🇷🇩🇪 e\u0301x\r\n👍🏽 a\u0301\u0302."
EOS = 1


@pytest.fixture(scope="module")
def bytewise() -> TextTokenizer:
    """One token a byte; PAD 0, EOS 1."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate(["<|pad|>", "<|eos|>", *alphabet])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|pad|>", "<|eos|>"])
    return TextTokenizer(backend, 0, 1)


def clusters(text: str) -> list[str]:
    import regex

    return regex.findall(r"\X", text)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_no_character_is_split_and_nothing_is_taken_back(bytewise: TextTokenizer, size: int) -> None:
    pytest.importorskip("regex")
    ids = bytewise.encode(HARD)
    row = RowText(bytewise, len(ids), EOS)
    pieces = [row.add(ids[k : k + size]) for k in range(0, len(ids), size)]
    assert "".join(pieces) == row.text == HARD and row.reason == "length"
    assert not any("\ufffd" in piece for piece in pieces)
    assert [c for piece in pieces for c in clusters(piece)] == clusters(HARD)


def test_half_a_character_at_the_end_comes_out_once(bytewise: TextTokenizer) -> None:
    ids = bytewise.encode("a😀")[:-1]
    row = RowText(bytewise, 99, EOS)
    assert [row.add([i]) for i in ids] == ["", "", "", ""]  # what begins here may be an accent on the "a"
    assert row.add([EOS, 5, 5]) == "a\ufffd" and row.text == bytewise.decode(ids) and row.reason == "stop"


def test_stop_strings_do_not_depend_on_the_blocks(bytewise: TextTokenizer) -> None:
    """Against a character-by-character reader, over random texts, stops and cuts."""
    rng = random.Random(0)
    stopped = 0
    for _ in range(300):
        text = "".join(rng.choices("abé", k=rng.randint(1, 20)))
        stops = ["".join(rng.choices("abé", k=rng.randint(1, 4))) for _ in range(rng.randint(0, 3))]
        expected, which = text, None
        for end in range(1, len(text) + 1):
            hits = [s for s in stops if text[:end].endswith(s)]
            if hits:
                which = max(hits, key=len)
                expected = text[: end - len(which)]
                break
        ids = bytewise.encode(text)
        row, pieces = RowText(bytewise, len(ids), EOS, stops), []
        while row.reason is None:
            size = rng.randint(1, 6)
            pieces.append(row.add(ids[:size]))
            ids = ids[size:]
        assert ("".join(pieces), row.text, row.stop) == (expected, expected, which)
        assert bytewise.decode(row.tokens) == expected and row.reason == ("stop" if which else "length")
        stopped += which is not None
    assert 100 < stopped < 300


def test_what_may_begin_a_stop_string_waits() -> None:
    assert waiting("say ab", ["abc", "b!"]) == 2 and waiting("say", ["abc"]) == 0
    assert first_stop("xaby", ["b", "ab"]) == (1, 3, "ab") and first_stop("x", ["y"]) is None


def test_generate_is_the_concatenation_of_stream(model) -> None:
    settings = {"num_samples": 2, "max_new_tokens": 21, "num_inference_steps": 3, "block_length": 4, "seed": 3}
    pieces = stream(model, ["ab", ""], **settings)
    texts, blocks, ended = [""] * 4, [0] * 4, [None] * 4
    for piece in pieces:
        assert piece.block == blocks[piece.row] and ended[piece.row] is None
        texts[piece.row] += piece.text
        blocks[piece.row] += 1
        ended[piece.row] = piece.finish_reason
    heard: list = []
    out = generate(model, ["ab", ""], **settings, callback_on_piece=heard.append)
    assert texts == out.texts == [model.tokenizer.decode(ids) for ids in out.sequences]
    assert ended == out.finish_reasons == ["length"] * 4 and blocks == [6] * 4 and len(heard) == 24
    assert pieces.output.sequences == out.sequences and pieces.output.nfe == out.nfe == [18] * 4
    assert len(out.block_seconds) == 6 and out.block_seconds == sorted(out.block_seconds)
    assert (
        out.first_block_seconds == out.block_seconds[0] >= out.prefill_seconds and out.seconds >= out.block_seconds[-1]
    )


def test_a_reader_who_leaves_pays_for_no_further_block(model) -> None:
    calls: list = []
    pieces = stream(
        model, [""], max_new_tokens=40, num_inference_steps=2, block_length=4, callback_on_step_end=calls.append
    )
    assert calls == []
    first = next(pieces)
    assert len(calls) == 2 and pieces.output.texts == [first.text] and len(pieces.output.sequences[0]) == 4


def test_stop_strings_end_a_row_and_not_its_neighbour(model, monkeypatch) -> None:
    a, b, c = model.tokenizer.encode("abc")

    def scripted(out):
        ids = torch.full((len(out.logits), 4), a)
        if len(ids) == 2:
            ids[0] = torch.tensor([a, a, b, c])
        return ids

    monkeypatch.setattr(model, "round", scripted)
    common = {"max_new_tokens": 12, "block_length": 4, "num_inference_steps": 1}
    out = generate(model, ["b", ""], stop="baa", **common)  # the "b" of the prompt counts for nothing
    assert out.texts == ["aabc" * 3, "a" * 12] and out.stops == [None, None]
    out = generate(model, ["", ""], stop="bc", **common)
    assert out.texts == ["aa", "a" * 12] and out.sequences[0] == [a, a]
    assert out.finish_reasons == ["stop", "length"] and out.stops == ["bc", None] and out.nfe == [1, 3]


def test_a_stop_string_across_blocks_is_found_and_never_shown(model, monkeypatch) -> None:
    a, b, c = model.tokenizer.encode("abc")
    blocks = iter([[a, a, a, b], [c, a, a, a]])
    monkeypatch.setattr(model, "round", lambda out: torch.tensor([next(blocks)]))
    pieces = list(stream(model, ["bc"], max_new_tokens=12, block_length=4, num_inference_steps=1, stop=["bc"]))
    assert [piece.text for piece in pieces] == ["aaa", ""] and pieces[-1].finish_reason == "stop"


def test_min_new_tokens_forbids_eos_until_then(model) -> None:
    model.rounding.prior.fill_(-1e9)
    model.rounding.prior[model.eos_id] = 0.0
    model.rounding.prior[model.tokenizer.encode("a")[0]] = -1e6
    for least in (0, 1, 5, 11):
        out = generate(
            model, ["", "ab"], max_new_tokens=12, block_length=4, num_inference_steps=2, min_new_tokens=least
        )
        assert [len(ids) for ids in out.sequences] == [least] * 2 and out.finish_reasons == ["stop"] * 2
    everything = generate(model, [""], max_new_tokens=12, block_length=4, num_inference_steps=2, min_new_tokens=12)
    assert len(everything.sequences[0]) == 12 and everything.finish_reasons == ["length"]


def test_prompts_may_be_texts_ids_and_chats(model) -> None:
    ids = model.tokenizer.encode("abc")
    settings = {"max_new_tokens": 10, "num_inference_steps": 2}
    out = generate(model, ["abc", ids, []], **settings)
    assert out.prompts == ["abc", "abc", ""]
    alone = [generate(model, [prompt], **settings, seed=k) for k, prompt in enumerate([ids, "abc", ""])]
    assert out.sequences == [one.sequences[0] for one in alone]
    chat = [{"role": "user", "content": "ab"}]
    with pytest.raises(CelerisError, match="role"):  # this tokenizer has none
        generate(model, [chat], **settings)
    model.tokenizer.encode_chat = lambda messages: [*model.tokenizer.encode(messages[0]["content"]), ids[2]]
    assert generate(model, [chat], **settings).sequences == generate(model, ["abc"], **settings).sequences


def test_an_eos_in_the_prompt_is_context(model) -> None:
    ids = [*model.tokenizer.encode("ab"), model.eos_id, *model.tokenizer.encode("c")]
    out = generate(model, [ids], max_new_tokens=8, num_inference_steps=2)
    assert len(out.sequences[0]) == 8 and out.prompts == ["abc"]


@pytest.mark.parametrize(
    ("prompts", "arguments", "message"),
    [
        ("abc", {}, "put it into a list"),
        ([[0]], {}, "PAD"),
        ([[999]], {}, "id 999"),
        ([[True]], {}, "holds True"),
        (["a"], {"stop": [""]}, "stop string is empty"),
        (["a"], {"min_new_tokens": 9}, "min_new_tokens is 9"),
        (["a"], {"min_new_tokens": -1}, "min_new_tokens is -1"),
    ],
)
def test_requests_that_cannot_be_written(model, prompts, arguments, message) -> None:
    with pytest.raises(CelerisError, match=message):
        stream(model, prompts, max_new_tokens=8, **arguments)
