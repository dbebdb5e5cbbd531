"""Memory and throughput of a planned run, and in words what to change where it does not fit."""

from dataclasses import dataclass
from math import floor

from celeris.scaling.hardware import Hardware
from celeris.scaling.memory import Memory, memory_of
from celeris.scaling.plan import Plan
from celeris.scaling.step_time import StepTime, step_time
from celeris.scaling.trace import Trace


@dataclass(frozen=True)
class Estimate:
    """Of one run on one kind of device.

    Attributes:
        trace, plan, hardware: what it is made of.
        memory: of a rank; time: of a step.
    """

    trace: Trace
    plan: Plan
    hardware: Hardware
    memory: Memory
    time: StepTime

    @property
    def room(self) -> float:
        """Bytes of a device that tensors can have."""
        return self.hardware.memory * self.hardware.usable

    @property
    def fits(self) -> bool:
        return self.memory.total <= self.room

    @property
    def micro_tokens(self) -> int:
        return self.plan.micro_batch * self.plan.length

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the text, over all ranks."""
        return self.plan.tokens / self.time.total

    @property
    def utilisation(self) -> float:
        """FLOPs done a second over the peak in bf16: hardware utilisation, whatever is computed twice included (PaLM,
        2204.02311, appendix B)."""
        return self.trace.flops * self.plan.accumulation / self.time.total / self.hardware.half_flops

    @property
    def days(self) -> float:
        return self.plan.steps * self.time.total / 86_400

    def verdict(self) -> str:
        """Whether it fits, in a sentence that says what to change where it does not."""
        need, room = self.memory.total / 1e9, self.room / 1e9
        if self.fits:
            return f"It fits: {need:.1f} of {room:.1f} GB that tensors can have on {self.hardware.name}."
        words = f"It does not fit: {need:.1f} GB, and tensors can have {room:.1f} GB on {self.hardware.name}; "
        left = self.room - self.memory.states - self.memory.collected
        if self.memory.update > left or left <= 0:
            if not self.plan.sharded:
                return words + "shard weights and optimizer over the ranks with trainer=fsdp."
            return words + "shard over more ranks (trainer.devices=, trainer.num_nodes=), or take a smaller model."
        rows = floor(self.plan.micro_batch * left / self.memory.activations)
        if rows:
            return words + f"micro_batch_size={_power_of_two(rows)} would, with the same gradient."
        return words + (
            "one row's activations are too much: compute layers again in backward (module.recompute_layers=true), or "
            "set length= lower."
        )


def estimate(trace: Trace, plan: Plan, hardware: Hardware) -> Estimate:
    return Estimate(trace, plan, hardware, memory_of(trace, plan), step_time(trace, plan, hardware))


def _power_of_two(rows: int) -> int:
    """The largest that is not more than `rows`."""
    return 1 << (rows.bit_length() - 1)
