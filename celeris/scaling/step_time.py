"""Seconds of an optimizer step: a roofline for every operation, and what communication adds.

An operation takes as long as its products at the speed that is reached, or its traffic at the memory's, or its launch,
whichever is longest (roofline; Williams, Waterman and Patterson 2009). Nothing is fused, as in eager PyTorch.
"""

from collections import Counter
from dataclasses import dataclass

from celeris.scaling.collectives import (
    all_reduce_bytes,
    gather_bytes,
    ring_messages,
    scatter_bytes,
    tree_messages,
    wire_seconds,
)
from celeris.scaling.hardware import Hardware
from celeris.scaling.ledger import Work
from celeris.scaling.memory import collected_bytes
from celeris.scaling.plan import Plan
from celeris.scaling.trace import Trace

BUCKET = 25 * 2**20
"""Bytes of gradients that DDP sends together (torch's default)."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of one optimizer step.

    Attributes:
        compute: forward and backward of all micro-batches.
        update: optimizer and average.
        wire: all communication, were nothing hidden; exposed: the part that no computation hides.
        sent: bytes that each rank sends.
    """

    compute: float
    update: float
    wire: float
    exposed: float
    sent: float

    @property
    def total(self) -> float:
        return self.compute + self.update + self.exposed

    @property
    def efficiency(self) -> float:
        """Share of the step in which the device computes."""
        return (self.compute + self.update) / self.total


def seconds_of(work: Counter[Work], hardware: Hardware, share: float = 1.0) -> float:
    """One after another on one device; `share`: how much of what is not learned from is done."""
    memory = hardware.memory_bandwidth * hardware.moved
    speed = {
        half: hardware.reached * (hardware.half_flops if half else hardware.single_flops) for half in (True, False)
    }
    return sum(
        times
        * (1.0 if one.learned else share)
        * max(one.flops / speed[one.half], one.traffic / memory, hardware.launch)
        for one, times in work.items()
    )


def step_time(trace: Trace, plan: Plan, hardware: Hardware) -> StepTime:
    """Of a step under `plan`."""
    forward = seconds_of(trace.forward, hardware, trace.share)
    backward, update = seconds_of(trace.backward, hardware), seconds_of(trace.update, hardware)
    compute = plan.accumulation * (forward + backward)
    if plan.ranks == 1:
        return StepTime(compute, update, 0.0, 0.0, 0.0)
    if plan.sharded:
        wire, exposed, sent = _sharded(trace, plan, hardware, forward, backward)
        return StepTime(compute, update / plan.ranks, wire, exposed, sent)
    wire, exposed, sent = _replicated(trace, plan, hardware, backward)
    return StepTime(compute, update, wire, exposed, sent)


def _replicated(trace: Trace, plan: Plan, hardware: Hardware, backward: float) -> tuple[float, float, float]:
    """Gradients travel in buckets while the last micro-batch's backward goes on; the last bucket waits for its end."""
    size = trace.states.gradients
    buckets = max(1, round(size / BUCKET))
    sent = all_reduce_bytes(size, plan.ranks)
    wire = wire_seconds(sent, buckets * tree_messages(plan.ranks), hardware.wire(plan.ranks), hardware.latency)
    return wire, max(wire - hardware.hides * backward, wire / buckets), sent


def _sharded(
    trace: Trace, plan: Plan, hardware: Hardware, forward: float, backward: float
) -> tuple[float, float, float]:
    """Weights are collected layer by layer once a step, while the first forward goes on; every micro-batch's gradients
    are divided up while its backward goes on. The first layer and the last gradient have nothing to hide behind."""
    states, bandwidth, messages = trace.states, hardware.wire(plan.ranks), ring_messages(plan.ranks)
    units = 1 + max(1, round(states.layers / states.largest_layer)) if states.layers else 1
    collected = gather_bytes(collected_bytes(states, plan), plan.ranks)
    divided = scatter_bytes(states.gradients, plan.ranks)
    gather = wire_seconds(collected, units * messages, bandwidth, hardware.latency)
    scatter = wire_seconds(divided, units * messages, bandwidth, hardware.latency)
    exposed = max(gather - hardware.hides * forward, gather / units)
    exposed += plan.accumulation * max(scatter - hardware.hides * backward, scatter / units)
    return gather + plan.accumulation * scatter, exposed, collected + plan.accumulation * divided
