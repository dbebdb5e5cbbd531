"""Pairs: what is generated from which prompt with which seed, what does not fit, and files that cannot be read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from celeris.errors import CelerisError
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.pairs import Pairs
from celeris.evaluation.record import Decoder, Subject
from celeris.evaluation.store import Store
from tests.evaluation.fakes import FakeData, FakeOutput, character_tokenizer

WINDOW = 40


class Echo(nn.Module):
    """Answers a prompt with the answer it knows for it; remembers what it was asked."""

    system, weight_hash, num_parameters, max_length = "echo", "0123456789ab", 7, WINDOW

    def __init__(self, answers: dict[str, str]):
        super().__init__()
        self.answers = answers
        self.tokenizer = character_tokenizer()
        self.weight = nn.Parameter(torch.zeros(1))
        self.info: dict[str, Any] = {}
        self.spec = {"_target_": "echo"}
        self.asked: list[dict[str, Any]] = []
        self.device = torch.device("cpu")

    def write(self, model: Any, prompts: list[str], *, num_samples: int, max_new_tokens: int, seed: int) -> FakeOutput:
        self.asked.append({"prompts": prompts, "samples": num_samples, "new": max_new_tokens, "seed": seed})
        rows = [self.tokenizer.encode(self.answers.get(prompt, "")) for prompt in prompts for _ in range(num_samples)]
        rows = [(ids + [self.tokenizer.eos_id])[:max_new_tokens] for ids in rows]
        return FakeOutput(rows, [1] * len(rows), [1] * len(rows))


@decoders.register
def _(model: Echo, choices: Choices) -> list[Decoder]:
    settings = [(t, {"decoder": "echo", "temperature": t}) for t in choices.autoregressive_temperatures]
    return [Decoder(f"echo/t{t:g}", f"echo, T {t:g}", setting, model.write) for t, setting in settings]


def subject(model: Echo, store: Store | None = None) -> Subject:
    return Subject(model, FakeData(model.tokenizer), model.tokenizer, seed=5, store=store or Store())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pairs = {"one and": "two", "the report of": "the navy", "a very long prompt that fills the window": "no"}
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"prompt": p, "reference": r}) + "\n" for p, r in pairs.items()) + "\n")
    return path


def test_each_prompt_is_answered_once_with_its_own_seed_and_long_ones_are_counted(file):
    model = Echo({"one and": "two", "the report of": "the fleet"})
    section = Pairs(str(file), batch_size=1)(subject(model))
    record = section.record
    assert (record["pairs"], record["skipped_long_prompts"], record["max_new_tokens"]) == (2, 1, len("the navy"))
    (entry,) = record["settings"]
    assert entry["exact_match"] == 0.5 and entry["rouge_1"] == pytest.approx(0.75)
    assert entry["texts"] == ["two", "the flee"]  # no longer than max_new_tokens
    assert [(a["prompts"], a["seed"]) for a in model.asked[1:]] == [(["one and"], 5), (["the report of"], 6)]
    assert record["chance"]["exact_match"] == 0.0
    assert section.scalars["pairs/echo_t0/exact_match"] == 0.5
    assert "1 pairs were skipped" in section.tables[0].notes[-1]


def test_limits(file):
    model = Echo({})
    record = Pairs(str(file), num_samples=1, max_new_tokens=2)(subject(model)).record
    assert (record["pairs"], record["max_new_tokens"], record["long_references"]) == (1, 2, 1)
    assert record["settings"][0]["empty"] == 1
    section = Pairs(str(file), max_new_tokens=WINDOW)(subject(model))
    assert section.record["pairs"] == 0 and "none leaves room for 40" in section.unavailable[0]
    for arguments in ({"num_samples": 0}, {"max_new_tokens": 0}):
        with pytest.raises(CelerisError, match="at least 1"):
            Pairs(**arguments)


def test_held_out_paragraphs_where_no_file_is_named():
    model = Echo({})
    found = Pairs(max_new_tokens=8)(subject(model)).record
    assert found["pairs"] >= 2 and found["max_new_tokens"] == 8
    prompts = model.asked[1]["prompts"]
    assert all(len(prompt) == 8 for prompt in prompts)


def test_outputs_are_kept(file, tmp_path):
    model = Echo({"one and": "two"})
    first = Pairs(str(file))(subject(model, Store(tmp_path / "kept"))).record
    asked = len(model.asked)
    again = subject(model, Store(tmp_path / "kept"))
    assert Pairs(str(file))(again).record == first
    assert len(model.asked) == asked and again.store.found == ["samples of echo, T 0"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "Line 2 .* is not JSON"),
        ('["a"]', "Line 2 .* is not an object"),
        ('{"prompt": "a"}', "Line 2 .* has no 'reference'"),
        ('{"prompt": "a", "reference": 3}', "Line 2 .* has reference=3"),
        ('{"prompt": "a", "reference": "\\ud83d"}', "Line 2 .* surrogate"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "a", "reference": "b"}\n' + line + "\n")
    with pytest.raises(CelerisError, match=words):
        Pairs(str(path))(subject(Echo({})))


def test_no_file_no_pairs_no_utf8(tmp_path):
    with pytest.raises(CelerisError, match="no file"):
        Pairs(str(tmp_path / "none.jsonl"))(subject(Echo({})))
    path = tmp_path / "empty.jsonl"
    path.write_text("\n\n")
    with pytest.raises(CelerisError, match="no pairs"):
        Pairs(str(path))(subject(Echo({})))
    path.write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(CelerisError, match="Line 1 .* is not UTF-8"):
        Pairs(str(path))(subject(Echo({})))
