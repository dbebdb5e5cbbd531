"""Tokens per second count text and nothing else (E13)."""

from itertools import count

import pytest

from celeris.evaluation.speed import Speed, real_tokens, time_calls

from .fakes import FakeOutput, FakeSampler, subject

EOS, PAD = 1, 0


def test_ten_real_tokens_in_one_second_are_ten_tokens_per_second():
    """A canvas of 128 of which 10 are text: 10.0, not 128. The clock ticks one second a call."""
    ticks = count()
    calls: list[int] = []

    def call(number: int) -> FakeOutput:
        calls.append(number)
        return FakeOutput([[*range(10, 20), EOS, *[EOS, PAD] * 58, 7]])

    timing = time_calls(call, eos_id=EOS, pad_id=PAD, repeats=3, warmup=2, clock=lambda: float(next(ticks)))
    assert timing.output_tokens_per_second == pytest.approx(10.0)
    assert timing.seconds == [1.0, 1.0, 1.0]  # two warm-up calls were made and not timed
    assert calls == [0, 1, 2, 3, 4]


def test_latency_quantiles():
    times = iter([0.0, 1.0, 10.0, 12.0, 20.0, 23.0])
    timing = time_calls(
        lambda number: FakeOutput([[5]]), eos_id=EOS, pad_id=PAD, repeats=3, warmup=0, clock=lambda: next(times)
    )
    assert timing.latency_p50 == pytest.approx(2.0)
    assert timing.latency_p90 == pytest.approx(2.8)
    assert timing.output_tokens_per_second == pytest.approx(3 / 6)


def test_no_text_at_all_is_zero_and_no_crash():
    timing = time_calls(lambda number: FakeOutput([[EOS, 5, 5], []]), eos_id=EOS, pad_id=PAD, repeats=1)
    assert timing.output_tokens_per_second == 0.0
    assert timing.entropy == 0.0


def test_real_tokens():
    assert real_tokens([5, 6, EOS, 7], EOS, PAD) == [5, 6]
    assert real_tokens([PAD, 5, PAD], EOS, PAD) == [5]
    assert real_tokens([], EOS, PAD) == []


def test_section_names_everything_that_changes_the_figure():
    about = subject()
    section = Speed(num_inference_steps=[2, 4], batch_sizes=[1, 3], length=32, repeats=2, warmup=1)(about)
    assert [(r["batch"], r["num_inference_steps"]) for r in section.record["settings"]] == [
        (1, 2), (1, 4), (3, 2), (3, 4),
    ]  # fmt: skip
    for record in section.record["settings"]:
        assert record["output_tokens"] == 2 * record["batch"] * 32
        for key in ("weight_hash", "step", "device", "precision", "seed", "threads", "length", "block_length",
                    "temperature", "latency_p50", "latency_p90", "entropy"):  # fmt: skip
            assert record[key] is not None, key
    assert isinstance(about.generate, FakeSampler)
    assert len(about.generate.calls) == 4 * 3
    assert all(call["prompts"] == [""] for call in about.generate.calls)
    seeds = [call["seed"] for call in about.generate.calls if call["num_samples"] == 3]
    assert seeds == [5, 8, 11] * 2  # no row twice
