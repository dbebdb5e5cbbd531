"""Texts from anywhere: figures, what was skipped, with and without real text, and files that cannot be read."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from celeris.data.sources.base import Split
from celeris.errors import CelerisError
from celeris.evaluation.given_texts import NEEDS_REAL_TEXT, measure_texts
from celeris.evaluation.jsonl import read_texts
from celeris.evaluation.mauve import MauveResult
from celeris.evaluation.quality import Quality
from celeris.evaluation.store import Store
from tests.evaluation.fakes import PROSE, FakeScorer, MissingScorer

EMOJI = "An emoji 😀 and 日本 stand in it"
THREE = [{"text": "The report of the Secretary of the Navy"}, {"text": ""}, {"text": EMOJI}]


class Closeness:
    """Remembers what it compared."""

    name = definition = "share"

    def __init__(self):
        self.compared: list[tuple[list[str], list[str]]] = []

    def __call__(self, texts, reference_texts):
        self.compared.append((list(texts), list(reference_texts)))
        return MauveResult(0.5, 0.1, [0.4, 0.6], min(len(texts), len(reference_texts)), 0)


class Prose:
    title = "prose"

    def __init__(self, val: str = PROSE):
        self.val = val

    def documents(self, split: Split) -> Iterator[str]:
        yield PROSE if split == "train" else self.val

    def fingerprint(self) -> str:
        return "f00d"


def test_three_texts_one_empty_and_one_with_emoji():
    section = measure_texts([*THREE, {"text": " \n"}], "samples", Quality(FakeScorer(), mauve=Closeness()), Prose())
    record = section.record
    assert record["counts"] == {
        "texts": 4,
        "measured": 2,
        "skipped_empty": 1,
        "skipped_white_space": 1,
        "with_reference": 0,
    }
    (figures,) = record["settings"]
    numbers = {name: value for name, value in figures.items() if isinstance(value, float)}
    assert len(numbers) > 15 and all(map(math.isfinite, numbers.values()))
    assert figures["gen_ppl"] == pytest.approx(math.e)  # one nat a character
    assert figures["tokens_scored"] == 39 + len(EMOJI) and figures["texts_skipped"] == 0
    assert (figures["min_characters"], figures["max_characters"]) == (len(EMOJI), 39)
    assert figures["copied_longest"] == 39 and figures["mauve"] == 0.5
    assert record["references"] is None and record["real_text"]["copied_longest"] > 0
    assert "4 texts: 2 measured, 1 skipped as empty, 1 as white space only." in section.headline
    json.dumps(record, allow_nan=False)


def test_real_text_has_the_lengths_of_the_texts():
    closeness = Closeness()
    texts = [{"text": "x" * n} for n in (3, 30, 7)]
    record = measure_texts(texts, "x", Quality(FakeScorer(), mauve=closeness), Prose()).record
    (ours, real), (again, others) = closeness.compared
    assert [len(text) for text in ours] == [len(text) for text in real] == [len(text) for text in others] == [3, 30, 7]
    assert real == again and not set(real) & set(others) and all(text in PROSE for text in (*real, *others))
    assert record["real_text"]["mean_characters"] == record["settings"][0]["mean_characters"]
    assert any("LOW-ENTROPY" in flag for flag in record["settings"][0]["flags"])


def test_without_real_text_its_figures_are_left_out_with_the_reason():
    closeness = Closeness()
    section = measure_texts(THREE, "samples", Quality(FakeScorer(), mauve=closeness), None)
    (figures,) = section.record["settings"]
    assert all(figures[name] is None for name in NEEDS_REAL_TEXT)
    assert figures["gen_ppl"] is not None and figures["self_bleu_4"] is not None and figures["flags"] == []
    assert section.record["real_text"] == {} and closeness.compared == []
    assert any("data=" in reason for reason in section.unavailable)
    assert section.tables[0].columns == ["", "samples"]


def test_without_a_scorer_the_other_figures_stand():
    section = measure_texts(THREE, "samples", Quality(MissingScorer()), Prose())
    (figures,) = section.record["settings"]
    assert figures["gen_ppl"] is None and figures["distinct_1"] > 0
    assert any("some-weights" in reason for reason in section.unavailable)


def test_references_are_compared_where_a_line_has_one():
    texts = [{"text": "to be ", "reference": "to be"}, {"text": "", "reference": "or not"}, {"text": "to be"}]
    record = measure_texts(texts, "samples", Quality(FakeScorer()), None).record
    assert record["references"]["pairs"] == 2 and record["references"]["exact_match"] == 0.5
    assert record["references"]["empty"] == 1 and record["counts"]["with_reference"] == 2


def test_scores_are_kept(tmp_path):
    scorers = [FakeScorer(), FakeScorer()]
    records = [
        measure_texts(THREE, "samples", Quality(scorer), Prose(), store=Store(tmp_path)).record for scorer in scorers
    ]
    assert records[0] == records[1] and scorers[0].read and not scorers[1].read


def test_nothing_to_measure():
    with pytest.raises(CelerisError, match="Of 2 texts none"):
        measure_texts([{"text": ""}, {"text": "\t"}], "samples", Quality(FakeScorer()), None)
    with pytest.raises(CelerisError, match="held-out text of prose is empty"):
        measure_texts(THREE, "samples", Quality(FakeScorer()), Prose(val=""))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{'text': 'a'}", "Line 3 .* is not JSON"),
        (b'"a"', "Line 3 .* is not an object"),
        (b'{"txt": "a"}', "Line 3 .* has no 'text'"),
        (b'{"text": null}', "Line 3 .* has text=None"),
        (b'{"text": "\\ud83d"}', "Line 3 .* surrogate"),
        (b'{"text": "\xe9"}', "Line 3 .* is not UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    file = tmp_path / "samples.jsonl"
    file.write_bytes(b'{"text": "a"}\n\n' + line + b'\n{"text": "b"}\n')
    with pytest.raises(CelerisError, match=words):
        read_texts(file)


def test_lines_of_both_kinds_of_file(tmp_path):
    def read(name: str, content: bytes) -> list[dict[str, Any]]:
        (tmp_path / name).write_bytes(content)
        return read_texts(tmp_path / name)

    lines = b'\xef\xbb\xbf{"text": "a\\u2028b", "reference": null, "id": 3}\r\n\n{"text": "", "reference": "r"}'
    assert read("a.jsonl", lines) == [{"text": "a\u2028b"}, {"text": "", "reference": "r"}]
    assert read("a.txt", "one 😀\r\n\ntwo\u2028lines\n".encode()) == [
        {"text": "one 😀"},
        {"text": ""},
        {"text": "two\u2028lines"},
    ]
    assert read("b.txt", b"") == []
    with pytest.raises(CelerisError, match="no file"):
        read_texts(tmp_path / "none.jsonl")
