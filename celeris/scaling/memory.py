"""Bytes on one rank."""

from dataclasses import dataclass

from celeris.scaling.plan import Plan
from celeris.scaling.states import States
from celeris.scaling.trace import Trace


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank at its fullest moment.

    Attributes:
        parameters, gradients, optimizer, average: what is kept between steps, of this rank.
        collected: whole weights, and the gradients that are being divided up, under FSDP; the buckets that gradients
            travel in under DDP.
        activations: most bytes in forward and backward beside the above; update: in the optimizer's step.
    """

    parameters: float
    gradients: float
    optimizer: float
    average: float
    collected: float
    activations: float
    update: float

    @property
    def states(self) -> float:
        return self.parameters + self.gradients + self.optimizer + self.average

    @property
    def total(self) -> float:
        return self.states + self.collected + max(self.activations, self.update)


def memory_of(trace: Trace, plan: Plan) -> Memory:
    """Of a rank under `plan`.

    Sharded states are 1/N of the whole (ZeRO, 1910.02054, section 5). The weights themselves are whole on every rank
    from the first use in a step to the last, the layers in the type they are collected in, and two layers have whole
    gradients at a time (`celeris.training.sharding`). DDP sends gradients from buckets, a second copy of them.
    """
    states, n = trace.states, plan.ranks if plan.sharded else 1
    if plan.ranks == 1:
        collected = 0.0
    elif plan.sharded:
        collected = collected_bytes(states, plan) + 2.0 * states.largest_layer + states.common
    else:
        collected = float(states.gradients)
    return Memory(
        parameters=states.parameters / n + states.buffers,
        gradients=states.gradients / n,
        optimizer=states.optimizer / n,
        average=states.average / n,
        collected=collected,
        activations=trace.peak,
        update=trace.update_peak / n,
    )


def collected_bytes(states: States, plan: Plan) -> float:
    """The whole weights as they are collected: layers in 16 bits under mixed precision, the rest in float32."""
    return states.layers / (2 if plan.half else 1) + states.common
