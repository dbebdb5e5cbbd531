"""Exact match against a writer whose answers are known: one that reads its prompt, and one that does not."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from celeris.data.sources.base import Pair, Split
from celeris.data.tokenizers import CharTokenizer
from celeris.errors import CelerisError
from celeris.evaluation.exact_match import TRUE, WRONG, ExactMatch, figures
from celeris.evaluation.record import Section, Subject
from celeris.evaluation.store import Store
from tests.evaluation.fakes import FakeData, FakeModel, FakeOutput

WORDS = [f"{a}{b}{c}" for a in "pqrs" for b in "tuv" for c in "wxyz"]
TOKENIZER = CharTokenizer(roles=True)([*WORDS, "!"])


@dataclass
class Backward:
    """Words to be spelled backward; "!" behind an answer is allowed by the scorer."""

    words: list[str] = field(default_factory=lambda: list(WORDS))
    title = "backward"

    def pairs(self, split: Split) -> Iterator[Pair]:
        return (Pair(word, word[::-1]) for word in self.words)

    def documents(self, split: Split) -> Iterator[str]:
        return iter(self.words)

    def fingerprint(self) -> str:
        return repr(self.words)

    def score(self, split: Split, number: int, response: str) -> float:
        assert split == "val"
        return 1.0 if response.rstrip("!") == self.words[number][::-1] else 0.25


@dataclass
class TaskData(FakeData):
    source: Any = field(default_factory=Backward)


def reader(model: Any, prompts: Any, *, num_samples: int, max_new_tokens: int, **rest: Any) -> FakeOutput:
    """Answers right where it takes at least 4 steps or writes token by token; else the first letter is missing."""
    user, assistant = TOKENIZER.role_id("user"), TOKENIZER.role_id("assistant")
    sequences = []
    for ids in prompts:
        assert ids[0] == user and ids[-1] == assistant
        answer = [*reversed(ids[1:-1]), *TOKENIZER.encode("!")]
        sequences.append(answer[:max_new_tokens] if rest.get("num_inference_steps", 4) >= 4 else answer[1:])
    return FakeOutput(sequences, [1] * len(sequences), [1] * len(sequences))


def deaf(model: Any, prompts: Any, **rest: Any) -> FakeOutput:
    """Always the first word."""
    return FakeOutput([TOKENIZER.encode(WORDS[0][::-1])] * len(prompts), [1] * len(prompts), [1] * len(prompts))


def measured(sampler: Any, source: Any = None, tokenizer: Any = TOKENIZER, **options: Any) -> Section:
    model = FakeModel(tokenizer, sampler, next_token=True)
    data = TaskData(tokenizer, source=source or Backward())
    subject = Subject(model, data, tokenizer, 0, False, Store())
    return ExactMatch(**{"num_inference_steps": (2, 4), "num_samples": 24, "batch_size": 7, **options})(subject)


def entry(section: Section, key: str, prompt: str = TRUE) -> dict[str, Any]:
    (found,) = [e for e in section.record["settings"] if e["key"] == f"fake/{key}" and e["prompt"] == prompt]
    return found


def test_a_reader_is_right_where_it_should_be_and_wrong_with_the_prompt_of_another() -> None:
    section = measured(reader, max_new_tokens=4)
    few, many = entry(section, "steps_2/eta_1/t0"), entry(section, "steps_4/eta_1/t0")
    assert (few["exact_match"], few["mean_score"], few["identical"]) == (0.0, 0.25, 0.0)
    assert (many["exact_match"], many["identical"], many["standard_error"]) == (1.0, 0.0, 0.0)  # "!" is not identical
    assert entry(section, "next_token/t0")["exact_match"] == 1
    assert entry(section, "steps_4/eta_1/t0", WRONG)["exact_match"] == 0
    for scale in ("1.5", "2"):
        assert entry(section, f"steps_4/eta_1/t0/g{scale}")["guidance_scale"] == float(scale)
    assert "100.0% ± 0.0%" in section.headline[0]


def test_the_longest_reference_sets_how_much_may_be_written() -> None:
    section = measured(reader)
    assert section.record["max_new_tokens"] == 4  # three letters and EOS
    assert section.record["pairs"] == 24


def test_one_that_does_not_read_is_as_good_with_any_prompt() -> None:
    section = measured(deaf)
    assert entry(section, "steps_4/eta_1/t0")["exact_match"] == pytest.approx(1 / 24)
    assert entry(section, "steps_4/eta_1/t0", WRONG)["exact_match"] == pytest.approx(1 / 24)


def test_pairs_beyond_the_window_are_skipped_and_counted() -> None:
    section = measured(reader, Backward(["p" * 40, *WORDS]), num_samples=8)
    assert (section.record["skipped_long"], section.record["pairs"]) == (1, 8)
    assert entry(section, "steps_4/eta_1/t0")["exact_match"] == 1  # the scorer is asked for the right pairs


def test_without_pairs_or_roles_it_is_left_out() -> None:
    assert measured(reader, source=object()).unavailable
    assert measured(reader, tokenizer=CharTokenizer()(WORDS)).unavailable
    with pytest.raises(CelerisError, match="num_samples"):
        ExactMatch(num_samples=0)


def test_figures_by_hand() -> None:
    found = figures(["a", "b", "c", "d"], ["a", "b", "c", "x"], lambda row, text: [1.0, 1.0, 0.5, 0.0][row])
    assert found == {"exact_match": 0.5, "standard_error": 0.25, "mean_score": 0.625, "identical": 0.75}


def test_the_plot_is_drawn() -> None:
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    measured(reader).plots["exact_match_by_steps"](axes)
    assert len(axes.get_legend().get_texts()) == 4
