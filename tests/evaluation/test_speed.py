"""Every decoder takes its turn, and a fake clock says how long each took."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from celeris.errors import CelerisError
from celeris.evaluation import flops, speed
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.plots import save
from celeris.evaluation.record import Decoder, Subject
from celeris.evaluation.report import plain_table
from celeris.evaluation.speed import Speed
from celeris.evaluation.speed_tables import busy

from .fakes import FakeData, character_tokenizer, subject


@pytest.fixture(autouse=True)
def _small_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "matmul_peak", partial(flops.matmul_peak, size=64))


class Clock:
    """Moves only when a stub works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Wrote:
    sequences: list[list[int]]
    nfe: list[int]
    context_passes: list[int]
    prefill_seconds: float
    first_block_seconds: float


class Stub(nn.Module):
    """Writes `text` and then EOS, at so many seconds a call and decoder."""

    max_length = 128
    weight_hash = "0123456789ab"
    num_parameters = 4
    has_next_token_head = True

    def __init__(self, clock: Clock, seconds: dict[str, float], text: str = "The ships.", system: str = "stub") -> None:
        super().__init__()
        self.clock, self.seconds, self.text, self.system = clock, seconds, text, system
        self.weight = nn.Parameter(torch.eye(2))
        self.info: dict[str, Any] = {}
        self.tokenizer = character_tokenizer()
        self.calls: list[tuple[str, int, int, list[str]]] = []

    @property
    def device(self) -> torch.device:
        return self.weight.device

    def write(
        self,
        name: str,
        model: nn.Module,
        prompts: Sequence[str],
        *,
        num_samples: int,
        max_new_tokens: int,
        seed: int,
    ) -> Wrote:
        rows = len(prompts) * num_samples
        self.calls.append((name, rows, seed, list(prompts)))
        self.clock.now += self.seconds[name]
        self.weight @ self.weight
        text = self.tokenizer.encode(self.text)[:max_new_tokens]
        row = text + [self.tokenizer.eos_id] * (max_new_tokens - len(text))
        return Wrote([row] * rows, [6] * rows, [4] * rows, 0.2 * self.seconds[name], 0.5 * self.seconds[name])


@decoders.register
def _(model: Stub, choices: Choices) -> list[Decoder]:
    return [
        Decoder(
            f"{model.system}/{name}",
            f"{model.system}, {name}",
            {"decoder": "autoregressive" if name == "token" else "diffusion"},
            partial(model.write, name),
        )
        for name in model.seconds
    ]


@dataclass
class Bench:
    """A metric on a fake clock, and the stubs it measures."""

    clock: Clock = field(default_factory=Clock)

    def subject(self, seconds: dict[str, float], **rest: Any) -> Subject:
        model = Stub(self.clock, seconds, **rest)
        return Subject(model, FakeData(model.tokenizer), model.tokenizer, seed=5)

    def speed(self, **arguments: Any) -> Speed:
        metric = Speed(**arguments)
        metric.clock = self.clock
        return metric


def test_ten_real_tokens_and_118_eos_in_one_second_read_ten_tokens_per_second():
    """E13."""
    bench = Bench()
    about = bench.subject({"token": 1.0})
    section = bench.speed(batch_sizes=[1], repeats=3, warmup=2)(about)
    (record,) = section.record["settings"]
    assert record["length"] == 128 and record["tokens"] == [10] * 3
    assert record["output_tokens_per_second"] == pytest.approx(10.0)
    assert record["output_tokens_per_second_without_prefill"] == pytest.approx(12.5)
    assert section.scalars["speed/stub/token/batch_1/tokens_per_second"] == pytest.approx(10.0)
    assert record["time_to_first_block_p50"] == pytest.approx(0.5)


def test_the_first_calls_do_not_count():
    """The stub takes a hundred seconds a call until it is warm."""
    bench = Bench()
    about = bench.subject({"token": 100.0})
    write, calls = about.model.write, 0

    def warming(name: str, *words: Any, **named: Any) -> Wrote:
        nonlocal calls
        calls += 1
        about.model.seconds = {"token": 100.0 if calls <= 3 else 1.0}
        return write(name, *words, **named)

    about.model.write = warming
    (record,) = bench.speed(batch_sizes=[1], repeats=4, warmup=2)(about).record["settings"]
    assert calls == 3 + 4  # two warm-ups, one of which counts FLOPs, and one that measures memory
    assert record["warmup"] == 3
    assert record["seconds"] == pytest.approx([1.0] * 4)


def test_settings_of_all_models_take_turns():
    bench = Bench()
    one, two = bench.subject({"a": 1.0, "token": 1.0}), bench.subject({"b": 1.0}, system="other")
    order: list[tuple[str, int]] = []
    for about in (one, two):
        write = about.model.write
        about.model.write = lambda name, *words, write=write, **named: (
            order.append((name, named["num_samples"])) or write(name, *words, **named)
        )
    section = bench.speed(batch_sizes=[1, 3], repeats=4).together([one, two])
    settings = {(name, rows) for name in ("a", "b", "token") for rows in (1, 3)}
    timed = order[2 * len(settings) :]
    turns = [timed[start : start + len(settings)] for start in range(0, len(timed), len(settings))]
    assert len(turns) == 4 and all(set(turn) == settings for turn in turns)
    assert len(set(map(tuple, turns))) > 1  # not always in the same order
    seeds = [seed for name, rows, seed, _ in one.model.calls if (name, rows) == ("a", 3)]
    assert seeds == [5 + 3 * number for number in range(6)]  # no row of a setting has another's seed
    assert len(section.record["settings"]) == len(settings)
    bench = Bench()
    again = bench.subject({"a": 1.0, "token": 1.0}), bench.subject({"b": 1.0}, system="other")
    bench.speed(batch_sizes=[1, 3], repeats=4).together(again)
    assert again[0].model.calls == one.model.calls


def test_a_decoder_of_half_the_time_is_twice_as_fast_on_a_machine_that_slows_down():
    bench = Bench()
    about = bench.subject({"a": 0.5, "token": 1.0})
    write = about.model.write
    load = [1.0]

    def loaded(name: str, *words: Any, **named: Any) -> Wrote:
        before = bench.clock.now
        out = write(name, *words, **named)
        bench.clock.now += (load[0] - 1) * (bench.clock.now - before)
        load[0] *= 1.02
        return out

    about.model.write = loaded
    quick, slow = bench.speed(batch_sizes=[1], repeats=7)(about).record["settings"]
    assert quick["output_tokens_per_second_max"] > 1.1 * quick["output_tokens_per_second_min"]
    assert quick["relative_to"] == slow["relative_to"] == "stub/token"
    assert quick["relative"] == pytest.approx(2.0, rel=0.2)
    assert quick["relative_min"] <= quick["relative"] <= quick["relative_max"]
    assert (slow["relative"], slow["relative_min"], slow["relative_max"]) == (1.0, 1.0, 1.0)


def test_the_yardstick_is_a_llama_if_there_is_one_and_nothing_if_nothing_writes_by_token():
    bench = Bench()
    own, llama = bench.subject({"a": 1.0, "token": 1.0}), bench.subject({"t1": 4.0}, system="llama")
    settings = bench.speed(batch_sizes=[1, 2], repeats=1).together([own, llama]).record["settings"]
    keys = ["stub/a", "stub/token", "llama/t1"]
    assert [(record["batch"], record["key"]) for record in settings] == [(rows, key) for rows in (1, 2) for key in keys]
    assert {record["relative_to"] for record in settings} == {"llama/t1"}
    assert {record["key"]: record["relative"] for record in settings} == pytest.approx(
        {"stub/a": 4.0, "stub/token": 4.0, "llama/t1": 1.0}
    )
    section = bench.speed(batch_sizes=[1], repeats=1)(bench.subject({"a": 1.0}))
    (record,) = section.record["settings"]
    assert record["relative_to"] is record["relative"] is record["output_tokens_per_second_sd"] is None
    assert "–" in "\n".join(plain_table(section.tables[0]))


def test_prompts_are_different_pieces_of_held_out_text_and_are_not_counted():
    bench = Bench()
    about = bench.subject({"token": 1.0})
    section = bench.speed(batch_sizes=[1, 4], prompt_lengths=[0, 7], length=[10, 20], repeats=2)(about)
    settings = section.record["settings"]
    places = [(record["batch"], record["prompt_length"], record["length"]) for record in settings]
    assert places == [(rows, prompt, length) for rows in (1, 4) for prompt in (0, 7) for length in (10, 20)]
    for record in settings:
        assert record["output_tokens_per_second"] == pytest.approx(10 * record["batch"])
    held_out = next(about.data.val_texts())
    for _, rows, _, prompts in about.model.calls:
        if prompts != [""]:
            assert len(set(prompts)) == rows
            assert all(prompt in held_out and len(about.tokenizer.encode(prompt)) == 7 for prompt in prompts)
    assert "speed/stub/token/batch_4/prompt_7/length_20/tokens_per_second" in section.scalars


def test_work_of_a_call_is_counted_and_compared_with_the_machine():
    bench = Bench()
    section = bench.speed(batch_sizes=[2], repeats=1)(bench.subject({"token": 1.0}))
    (record,) = section.record["settings"]
    product = 2 * 2**3  # of one product of two 2×2 matrices, for two rows of ten tokens
    assert record["flops_per_token"] == product / 20
    (peak,) = section.record["peak"].values()
    assert record["share_of_peak"] == pytest.approx(product / peak)
    assert (record["denoiser_calls"], record["context_passes"], record["forwards"]) == (6, 4, 10)
    assert record["tokens_per_forward"] == pytest.approx(1.0)


def test_constant_text_shows_in_the_entropy_beside_its_speed(tmp_path):
    bench = Bench()
    section = bench.speed(batch_sizes=[1], repeats=1).together(
        [bench.subject({"token": 1.0}, text="e" * 100), bench.subject({"b": 1.0}, text="abcde" * 20)]
    )
    constant, varied = section.record["settings"]
    assert constant["entropy"] == 0.0
    assert varied["entropy"] == pytest.approx(torch.tensor(5.0).log().item())
    lines = plain_table(section.tables[0])
    assert lines[2].split()[-1] == "entropy" and lines[3].split()[-1] == "0.00"
    save(section.plots["speed"], tmp_path / "speed.png", "Speed")
    assert (tmp_path / "speed.png").stat().st_size > 1000


def test_two_models_of_one_kind_are_told_apart():
    bench = Bench()
    one, two = bench.subject({"token": 1.0}), bench.subject({"token": 4.0})
    two.model.weight_hash = "fedcba987654"
    section = bench.speed(batch_sizes=[1], repeats=1).together([one, two])
    assert [row[0] for row in section.tables[0].rows] == ["stub, token (012345)", "stub, token (fedcba)"]
    assert section.scalars["speed/stub/token/fedcba987654/batch_1/tokens_per_second"] == pytest.approx(2.5)
    assert [record["relative"] for record in section.record["settings"]] == pytest.approx([1.0, 0.25])


def test_a_busy_machine_is_flagged():
    quiet = {"cores": 2, "load_average": [2.0, 9.0, 9.0], "load_average_after": [1.0, 1.0, 1.0]}
    assert busy(quiet) == [] == busy({"cores": 2, "load_average": None, "load_average_after": None})
    (flag,) = busy({**quiet, "load_average_after": [7.0, 1.0, 1.0]})
    assert flag.startswith("BUSY MACHINE: a load of 7.0 on 2 cores")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prompt_lengths": [120], "length": 20}, "120 tokens and 20 tokens of output exceed the window of 128"),
        ({"prompt_lengths": [128]}, "128 tokens and 1 tokens of output exceed the window of 128"),
        ({"prompt_lengths": [100], "batch_sizes": [64]}, "different prompts of 100 tokens and a batch needs 64"),
    ],
)
def test_lengths_that_cannot_be_are_named(arguments: dict[str, Any], words: str):
    bench = Bench()
    with pytest.raises(CelerisError, match=words):
        bench.speed(**arguments)(bench.subject({"token": 1.0}))


@pytest.mark.parametrize("name", ["batch_sizes", "length", "prompt_lengths"])
def test_values_out_of_range_are_named(name: str):
    with pytest.raises(CelerisError, match=f"{name}=.*-1"):
        Speed(**{name: [-1]})
    with pytest.raises(CelerisError, match=name):
        Speed(**{name: []})
    with pytest.raises(CelerisError, match="repeats"):
        Speed(repeats=0)


def test_section_names_everything_that_changes_the_figure():
    about = subject(next_token=True)
    section = Speed(num_inference_steps=[2, 4], batch_sizes=[1, 3], length=32, repeats=2)(about)
    settings = section.record["settings"]
    assert [(r["batch"], r["num_inference_steps"]) for r in settings] == [
        (rows, steps) for rows in (1, 3) for steps in (2, 4, None)
    ]
    for record in settings:
        assert record["output_tokens"] == 2 * record["batch"] * 32
        for key in ("key", "label", "system", "weight_hash", "step", "device", "precision", "parameters", "seed",
                    "threads", "length", "prompt_length", "temperature", "latency_p50", "latency_p90", "latency_p99",
                    "forwards", "tokens_per_forward", "entropy", "relative_to", "seconds"):  # fmt: skip
            assert record[key] is not None, key
    assert {"cpu", "threads", "torch", "load_average", "load_average_after"} <= set(section.record["environment"])
    for table in section.tables:
        assert max(map(len, plain_table(table)[1:])) <= 120
