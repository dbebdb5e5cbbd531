"""Lengths against writers whose lengths are known."""

import random
from typing import Any

import numpy as np
import pytest

from celeris.errors import CelerisError
from celeris.evaluation.lengths import HELD_OUT, Lengths, ks_p_value, ks_statistic
from celeris.evaluation.record import Section, Subject
from celeris.evaluation.store import Store
from tests.evaluation.fakes import FakeData, FakeModel, FakeOutput, character_tokenizer

TOKENIZER = character_tokenizer("ab")


def documents(count: int, seed: int, longest: int = 40) -> list[str]:
    rng = random.Random(seed)
    return ["a" * rng.randint(1, longest) for _ in range(count)]


def writer(lengths: Any) -> Any:
    """Row k of all that is asked for has so many tokens as entry k says, at most the limit."""

    def write(model: Any, prompts: Any, *, num_samples: int, max_new_tokens: int, seed: int, **rest: Any) -> FakeOutput:
        rows = [[3] * min(lengths[(seed + k) % len(lengths)], max_new_tokens) for k in range(num_samples)]
        return FakeOutput(rows, [1] * num_samples, [1] * num_samples)

    return write


def measured(sampler: Any, **options: Any) -> Section:
    data = FakeData(TOKENIZER, documents(300, 1), documents(200, 2))
    subject = Subject(FakeModel(TOKENIZER, sampler, next_token=True), data, TOKENIZER, 0, False, Store())
    settings = {"num_inference_steps": (4,), "temperatures": (1.0,), "num_samples": 200, "batch_size": 64} | options
    return Lengths(**settings)(subject)


def entry(section: Section, key: str) -> dict[str, Any]:
    (found,) = [e for e in section.record["settings"] if e["key"] == key]
    return found


def test_one_that_ends_as_documents_do_is_near_and_one_that_never_ends_is_said_to() -> None:
    good = measured(writer([len(text) for text in documents(200, 3)]))
    assert entry(good, "fake/steps_4/eta_1/t1")["ks"] < 0.1 < entry(good, "fake/steps_4/eta_1/t1")["p_value"]
    assert entry(good, "real")["ks"] < 0.1 and not good.flags
    endless = measured(writer([10_000]))
    found = entry(endless, "fake/next_token/t1")
    assert found["never_ended"] == 1 and found["mean"] == 64 and found["ks"] == 1 and found["p_value"] < 1e-6
    assert endless.flags[0].startswith("NO-END: 100%")


def test_both_are_counted_at_the_same_limit() -> None:
    """Where everything is longer than the limit nothing differs."""
    section = measured(writer([10_000]), max_new_tokens=1)
    assert entry(section, "fake/next_token/t1")["ks"] == 0
    assert section.record["held_out"]["never_ended"] == 1


def test_a_shift_is_the_statistic_it_makes() -> None:
    assert ks_statistic([1, 2, 3, 4], [1, 2, 3, 4]) == 0
    assert ks_statistic([1, 2, 3, 4], [3, 4, 5, 6]) == 0.5
    assert ks_statistic([1], [2]) == ks_statistic([2], [1]) == 1


def test_p_values_are_those_of_equal_distributions() -> None:
    """Of samples of one distribution, a share p has a p-value below p."""
    rng = np.random.default_rng(0)
    found = [ks_p_value(ks_statistic(rng.random(151), rng.random(200)), 151, 200) for _ in range(1000)]
    for p in (0.05, 0.2, 0.5):
        assert abs(np.mean(np.array(found) < p) - p) < 0.04
    stats = pytest.importorskip("scipy.stats")
    a, b = rng.random(120), rng.random(180) + 0.1
    assert ks_statistic(a, b) == pytest.approx(stats.ks_2samp(a, b).statistic)
    assert ks_p_value(ks_statistic(a, b), 120, 180) == pytest.approx(stats.ks_2samp(a, b).pvalue, abs=0.02)


def test_the_plot_and_the_table_have_every_decoder() -> None:
    section = measured(writer([3, 9]))
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    section.plots["lengths"](axes)
    assert len(axes.get_legend().get_texts()) == len(section.tables[0].rows) == 4
    assert section.tables[0].rows[0][0] == HELD_OUT
    assert sum(section.record["held_out"]["histogram"]) == 200


def test_without_documents_it_is_left_out() -> None:
    subject = Subject(FakeModel(TOKENIZER, writer([3])), FakeData(TOKENIZER, ["a"], []), TOKENIZER, 0, False, Store())
    assert Lengths()(subject).unavailable
    with pytest.raises(CelerisError, match="num_samples"):
        Lengths(num_samples=0)
