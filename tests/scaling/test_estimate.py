"""Plans over many devices: sums that must hold, limits, and what a user is told."""

import dataclasses
import functools

import pytest

from celeris.errors import CelerisError
from celeris.scaling.estimate import estimate
from celeris.scaling.hardware import Hardware
from celeris.scaling.memory import memory_of
from celeris.scaling.plan import Plan
from celeris.scaling.report import report
from celeris.scaling.small import Size, trace_of
from celeris.scaling.step_time import seconds_of, step_time
from celeris.scaling.trace import Trace

SIZE = Size(width=64, depth=3, vocab_size=90, rows=2, length=64)
MACHINE = Hardware("a device", 1e12, 1e12, 1e9, 1e11, 8, 1e10, 1e9)


@functools.cache
def trace() -> Trace:
    return trace_of(SIZE)


def plan(ranks: int, sharded: bool = False, accumulation: int = 1) -> Plan:
    return Plan(ranks, sharded, SIZE.rows, SIZE.rows * ranks * accumulation, SIZE.length, steps=10)


def test_one_rank_needs_no_wire_and_nothing_twice() -> None:
    for sharded in (False, True):
        time, memory = step_time(trace(), plan(1, sharded), MACHINE), memory_of(trace(), plan(1, sharded))
        assert time.efficiency == 1 and time.sent == 0
        assert memory.states == trace().states.total and memory.collected == 0


def test_shards_are_the_whole_divided() -> None:
    whole, shard = memory_of(trace(), plan(8)), memory_of(trace(), plan(8, sharded=True))
    buffers = trace().states.buffers
    assert 8 * (shard.states - buffers) == pytest.approx(whole.states - buffers)
    assert shard.activations == whole.activations


def test_ddp_sends_the_same_however_many_micro_batches_and_fsdp_does_not() -> None:
    sent = {(s, k): step_time(trace(), plan(4, s, k), MACHINE).sent for s in (False, True) for k in (1, 3)}
    states = trace().states
    assert sent[False, 1] == sent[False, 3] == pytest.approx(2 * 0.75 * states.gradients)
    weights = states.layers / 2 + states.common
    for k in (1, 3):  # weights once a step, gradients in every micro-batch
        assert sent[True, k] == pytest.approx(0.75 * (weights + k * states.gradients))


def test_what_hides_and_what_does_not() -> None:
    fast = dataclasses.replace(MACHINE, inside_node=1e15, between_nodes=1e15, latency=0.0)
    slow = dataclasses.replace(MACHINE, hides=0.0)
    for sharded in (False, True):
        assert step_time(trace(), plan(4, sharded), fast).efficiency > 0.999
        time = step_time(trace(), plan(4, sharded), slow)
        assert time.exposed == pytest.approx(time.wire)


def test_more_accumulation_wastes_less_on_the_wire() -> None:
    slow = dataclasses.replace(MACHINE, inside_node=1e7)
    few, many = (step_time(trace(), plan(4, accumulation=k), slow) for k in (1, 8))
    assert few.efficiency < many.efficiency < 1
    assert many.compute == pytest.approx(8 * few.compute)


def test_the_slowest_link_counts() -> None:
    assert MACHINE.wire(8) == MACHINE.inside_node * MACHINE.moved
    assert MACHINE.wire(9) == MACHINE.between_nodes * MACHINE.moved


def test_an_operation_takes_the_longest_of_its_three_times() -> None:
    from collections import Counter

    from celeris.scaling.ledger import Work

    peak = dataclasses.replace(MACHINE, reached=1.0, moved=1.0, launch=1.0, half_flops=2e12)
    for work, seconds in (
        (Work(10, 10, False, True), 1.0),
        (Work(5 * 10**12, 10, False, True), 5.0),
        (Work(8 * 10**12, 10, True, True), 4.0),
        (Work(0, 3 * 10**11, False, True), 3.0),
    ):
        assert seconds_of(Counter({work: 2}), peak) == pytest.approx(2 * seconds)
    assert seconds_of(Counter({Work(0, 0, False, False): 4}), peak, share=0.25) == pytest.approx(1.0)


def room_for(size: float) -> Hardware:
    return dataclasses.replace(MACHINE, memory=size / MACHINE.usable)


def test_the_verdict_names_what_would_help() -> None:
    replicated, sharded = memory_of(trace(), plan(8)), memory_of(trace(), plan(8, sharded=True))
    enough = estimate(trace(), plan(8), room_for(replicated.total * 1.01))
    assert enough.fits and enough.verdict().startswith("It fits")
    tight = estimate(
        trace(), plan(8), room_for(replicated.states + replicated.collected + 0.6 * replicated.activations)
    )
    assert not tight.fits and "micro_batch_size=1 " in tight.verdict()
    assert "trainer=fsdp" in estimate(trace(), plan(8), room_for(replicated.states * 0.9)).verdict()
    few = estimate(trace(), plan(8, sharded=True), room_for(sharded.states * 0.9))
    assert "more ranks" in few.verdict()
    single = estimate(
        trace(), plan(8), room_for(replicated.states + replicated.collected + 0.1 * replicated.activations)
    )
    assert "recompute_layers=true" in single.verdict()


def test_a_plan_that_does_not_divide_is_refused() -> None:
    with pytest.raises(CelerisError, match="global_batch_size=10 is not a multiple of micro_batch_size=4 times 2"):
        Plan(2, False, 4, 10, 64, 1)
    with pytest.raises(CelerisError, match="hardware.memory is 0"):
        dataclasses.replace(MACHINE, memory=0)


def test_the_report_has_the_figures() -> None:
    found = estimate(trace(), plan(4), MACHINE)
    text = report(found)
    assert f"{trace().parameters:,}" in text and found.verdict() in text
    assert found.tokens_per_second == pytest.approx(found.plan.tokens / found.time.total)
