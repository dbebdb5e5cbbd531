"""An estimate as lines of text."""

from celeris.scaling.estimate import Estimate


def report(found: Estimate) -> str:
    """Memory of a rank, time of a step and of the run, what was assumed, and the verdict."""
    trace, plan, hardware, memory, time = found.trace, found.plan, found.hardware, found.memory, found.time
    sharding = "sharded (FSDP)" if plan.sharded else "replicated (DDP)" if plan.ranks > 1 else "one device"
    rows = [
        ("parameters", f"{trace.parameters:,}"),
        ("devices", f"{plan.ranks} x {hardware.name}, {sharding}"),
        (
            "a step",
            f"{plan.global_batch} rows of {plan.length:,} tokens = {plan.tokens:,} tokens, "
            f"{plan.accumulation} micro-batch(es) of {plan.micro_batch} row(s) a device",
        ),  # fmt: skip
        ("memory of a device", ""),
        ("  weights, gradients", f"{_gb(memory.parameters)} + {_gb(memory.gradients)}"),
        ("  optimizer, average", f"{_gb(memory.optimizer)} + {_gb(memory.average)}"),
        ("  collected blocks" if plan.sharded else "  gradient buckets", _gb(memory.collected)),
        (
            "  activations",
            f"{_gb(memory.activations)}, of which {_gb(trace.kept)} wait for backward; "
            f"{_gb(trace.logits)} a tensor of logits",
        ),  # fmt: skip
        ("  optimizer's own work", f"{_gb(memory.update)} (not at the same time)"),
        ("  together", _gb(memory.total)),
        (
            "arithmetic of a token",
            f"{trace.forward_flops / found.micro_tokens / 1e9:,.3f} GFLOP forward, "
            f"{trace.backward_flops / found.micro_tokens / 1e9:,.3f} backward",
        ),  # fmt: skip
        (
            "time of a step",
            f"{_s(time.total)}: {_s(time.compute)} passes, {_s(time.update)} optimizer, "
            f"{_s(time.exposed)} waiting for the wire",
        ),  # fmt: skip
        (
            "communication",
            f"{_gb(time.sent)} sent by each device, {_s(time.wire)} of which computing hides "
            f"{_s(time.wire - time.exposed)}",
        ),  # fmt: skip
        ("throughput", f"{found.tokens_per_second:,.0f} tokens/s, {found.utilisation:.0%} of the bf16 peak"),
        (
            "the run",
            f"{plan.steps:,} steps, {plan.steps * plan.tokens / 1e9:,.1f} billion tokens, {found.days:,.1f} days",
        ),
        (
            "assumed",
            f"products reach {hardware.reached:.0%} of the peaks, memory and wires {hardware.moved:.0%} of "
            f"theirs, no operation is fused, {hardware.launch * 1e6:.0f} µs a launch",
        ),  # fmt: skip
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join([*(f"{name:<{width}}  {text}".rstrip() for name, text in rows), found.verdict()])


def _gb(size: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:,.2f} {name}"
    return f"{size / 1e3:,.0f} kB"


def _s(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.1f} ms"
