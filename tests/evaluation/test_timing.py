"""Tokens per second count text and nothing else (E13); percentiles, rounds and ratios by hand."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pytest
import torch

from celeris.evaluation.flops import count_flops, matmul_peak
from celeris.evaluation.machine import describe_machine
from celeris.evaluation.memory import Memory, peak_memory
from celeris.evaluation.timing import Call, percentile, real_tokens, relative, rounds, summarize, time_call

EOS, PAD = 1, 0


@dataclass
class Told:
    """What a sampler returns that says how long its parts took."""

    sequences: list[list[int]]
    nfe: list[int] = field(default_factory=lambda: [8])
    context_passes: list[int] = field(default_factory=lambda: [2])
    prefill_seconds: float = 0.25
    first_block_seconds: float = 0.5


def call_of(tokens: int, seconds: float) -> Call:
    return Call(seconds, 0.0, None, [[5] * tokens], 4, 1, 5)


def test_ten_real_tokens_in_one_second_are_ten_tokens_per_second():
    """A canvas of 128 of which 10 are text: 10.0, not 128. The clock ticks one second a call."""
    ticks = count()
    row = [*range(10, 20), EOS, *[EOS, PAD] * 58, 7]
    assert len(row) == 128
    call = time_call(lambda: Told([row]), eos_id=EOS, pad_id=PAD, clock=lambda: float(next(ticks)))
    figures = summarize([call] * 3)
    assert figures["output_tokens_per_second"] == 10.0
    assert figures["output_tokens_per_second_without_prefill"] == pytest.approx(10 / 0.75)
    assert figures["time_to_first_block_p50"] == 0.5
    assert figures["output_tokens"] == 30
    assert (figures["denoiser_calls"], figures["context_passes"], figures["forwards"]) == (8, 2, 10)
    assert figures["tokens_per_forward"] == pytest.approx(1.0)


def test_the_device_has_finished_before_the_clock_is_read():
    said: list[str] = []

    def clock() -> float:
        said.append("clock")
        return 0.0

    def call() -> Told:
        said.append("call")
        return Told([[5]])

    time_call(call, eos_id=EOS, pad_id=PAD, synchronize=lambda: said.append("wait"), clock=clock)
    assert said == ["wait", "clock", "call", "wait", "clock"]


def test_a_sampler_that_says_nothing_about_its_parts():
    call = Call(2.0, None, None, [[5, 5]], 0, 0, 0)
    figures = summarize([call, call_of(4, 1.0)])
    assert figures["output_tokens_per_second"] == pytest.approx(2.0)
    assert figures["output_tokens_per_second_without_prefill"] is None
    assert figures["time_to_first_block_p50"] is None
    assert summarize([call])["tokens_per_forward"] is None


def test_spread_is_that_of_the_calls():
    rates = [10.0, 20.0, 60.0]
    figures = summarize([call_of(60, 60 / rate) for rate in rates])
    assert figures["output_tokens_per_second_sd"] == pytest.approx(np.std(rates, ddof=1))
    assert (figures["output_tokens_per_second_min"], figures["output_tokens_per_second_max"]) == (10.0, 60.0)
    assert figures["output_tokens_per_second"] == pytest.approx(180 / (6 + 3 + 1))  # time counts, not calls


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_percentiles_are_numpys(size: int):
    values = np.random.default_rng(size).exponential(size=size).tolist()
    for share in (0.0, 0.5, 0.9, 0.99, 1.0):
        assert percentile(values, share) == pytest.approx(np.quantile(values, share))


def test_every_round_has_every_setting_once_in_an_order_of_its_own():
    order = rounds(20, 5, seed=7)
    assert [sorted(places) for places in order] == [list(range(20))] * 5
    assert Counter(map(tuple, order)).most_common(1)[0][1] == 1
    assert order == rounds(20, 5, seed=7) != rounds(20, 5, seed=8)


def test_ratios_within_a_round_do_not_see_a_machine_that_slows_down():
    """Each round is ten times slower than the one before: tokens/s are 1 to 100, the ratio is 2 in every round."""
    slow = [call_of(10, 10.0**number) for number in range(3)]
    quick = [call_of(10, 0.5 * 10.0**number) for number in range(3)]
    assert relative(quick, slow) == pytest.approx({"relative": 2.0, "relative_min": 2.0, "relative_max": 2.0})
    assert set(relative(quick, None).values()) == {None}
    assert set(relative(quick, [call_of(0, 1.0)] * 3).values()) == {None}


def test_real_tokens():
    assert real_tokens([5, 6, EOS, 7], EOS, PAD) == [5, 6]
    assert real_tokens([PAD, 5, PAD], EOS, PAD) == [5]
    assert real_tokens([], EOS, PAD) == []


def test_no_text_at_all_is_zero_and_no_crash():
    figures = summarize([time_call(lambda: Told([[EOS, 5, 5], []]), eos_id=EOS, pad_id=PAD)])
    assert figures["output_tokens_per_second"] == 0.0
    assert figures["entropy"] == 0.0


@pytest.mark.parametrize("causal", [False, True])
def test_flops_of_a_transformer_layer_by_hand(causal: bool):
    """q, k, v, output and two linear layers of the MLP, 2·T·in·out each, and attention: scores and their mean of v."""
    rows, length, width, heads = 3, 10, 16, 4
    linear = torch.nn.ModuleList(torch.nn.Linear(width, n) for n in (3 * width, width, 4 * width))
    down = torch.nn.Linear(4 * width, width, bias=False)

    def layer() -> torch.Tensor:
        x = torch.randn(rows, length, width)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in linear[0](x).chunk(3, -1))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + linear[1](mixed.transpose(1, 2).flatten(2))
        return x + down(linear[2](x).relu())

    by_hand = 2 * rows * length * (3 * width**2 + width**2 + 4 * width**2 + 4 * width**2)
    by_hand += 2 * 2 * rows * length * length * width
    with torch.no_grad():
        counted, out = count_flops(layer)
    assert counted == by_hand
    assert out.shape == (rows, length, width)


def test_the_peak_is_a_speed():
    assert 1e7 < matmul_peak(torch.device("cpu"), torch.float32, size=64, repeats=2) < 1e14


def test_memory_of_a_call_is_its_own_and_not_that_of_an_earlier_one():
    """64 MB held for the time of the call; what another needed before does not count."""
    device = torch.device("cpu")
    peak_memory(lambda: torch.ones(40_000_000), device)  # 160 MB
    held = peak_memory(lambda: torch.ones(16_000_000), device)
    if held.reason is not None:
        pytest.skip(held.reason)
    assert held.extra is not None and 60e6 < held.extra < 90e6


def test_memory_says_why_there_is_none(tmp_path):
    made: list[int] = []
    held = peak_memory(lambda: made.append(1), torch.device("cpu"), process=tmp_path / "none")
    assert held.extra is None and held.reason and made == [1]
    assert peak_memory(lambda: made.append(1), torch.device("mps")).reason and made == [1, 1]
    assert Memory(5, 9).extra == 0


def test_the_machine_is_described():
    machine = describe_machine()
    assert machine["threads"] == torch.get_num_threads() and machine["torch"] == torch.__version__
    assert machine["cpu"] and {"load_average", "cores", "celeris", "python"} <= set(machine)
