"""The tables and the picture of docs/scaling.md."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from celeris.errors import CelerisError
from celeris.evaluation.record import Table
from celeris.evaluation.report import markdown_table
from celeris.scaling.collectives import tensor_parallel_bytes
from celeris.scaling.estimate import Estimate, estimate
from celeris.scaling.hardware import Hardware
from celeris.scaling.plan import Plan
from celeris.scaling.trace import Trace

MARK = "<!-- python -m celeris.tasks.scaling docs/scaling.md writes all that follows -->"
"""What stands above this line of the page is somebody's text, and kept."""
DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024)
COLUMNS = ["GPUs", "rows x micro-batches a GPU", "GB sent a GPU", "step", "waiting for the wire", "tokens/s",
           "a GPU's share of its best", "of bf16 peak", "GB a GPU", "days"]  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A model to lay over devices.

    Attributes:
        name: of the experiment.
        plan: of its configuration.
        trace: of a micro-batch of the plan's size.
        width, depth: of the trunk.
    """

    name: str
    plan: Plan
    trace: Trace
    width: int
    depth: int


def fixed_batch(subject: Subject, hardware: Hardware) -> dict[int, Estimate | None]:
    """The experiment's own global batch over more and more devices, in micro-batches of its own size or of what is left
    for a device; None where there are more devices than rows."""
    plan = subject.plan
    rows = {ranks: min(plan.micro_batch, plan.global_batch // ranks) for ranks in DEVICES}
    return {
        ranks: _laid(subject, ranks, few, plan.global_batch, hardware) if few else None for ranks, few in rows.items()
    }


def fixed_share(subject: Subject, hardware: Hardware) -> dict[int, Estimate]:
    """One micro-batch of the configuration's size a device, so that the global batch grows with them."""
    rows = subject.plan.micro_batch
    return {ranks: _laid(subject, ranks, rows, rows * ranks, hardware) for ranks in DEVICES}


def _laid(subject: Subject, ranks: int, rows: int, batch: int, hardware: Hardware) -> Estimate:
    plan = replace(subject.plan, ranks=ranks, micro_batch=rows, global_batch=batch)
    return estimate(fewer_rows(subject.trace, rows / subject.plan.micro_batch), plan, hardware)


def fewer_rows(trace: Trace, share: float) -> Trace:
    """As if counted for `share` of the rows. Weights are read all the same, which is little beside the activations: a
    row of these experiments has at least 1,024 tokens, and a product is bound by memory below a few hundred."""
    if share == 1:
        return trace
    forward, backward = (
        Counter({one._replace(flops=one.flops * share, traffic=one.traffic * share): n for one, n in work.items()})
        for work in (trace.forward, trace.backward)
    )
    sizes = {name: getattr(trace, name) * share for name in ("kept", "peak", "logits")}
    return replace(trace, forward=forward, backward=backward, **sizes)


def page(subjects: Sequence[Subject], hardware: Hardware, measured: dict[str, Any] | None) -> str:
    """All below `MARK`, as Markdown."""
    lines = [MARK, "", *_assumed(hardware), "", "![efficiency](scaling.png)", ""]
    for subject in subjects:
        lines += _subject(subject, hardware)
    lines += ["## Measured", ""]
    lines += _measured(measured) if measured else ["Not measured yet: `python -m celeris.scaling.measure`.", ""]
    return "\n".join(lines)


def _assumed(hardware: Hardware) -> list[str]:
    return [
        f"* {hardware.name}: {hardware.half_flops / 1e12:,.0f} TFLOP/s in bf16, {hardware.single_flops / 1e12:,.1f} in "
        f"float32, of which {hardware.reached:.0%} are taken to be reached",
        f"* memory {hardware.memory_bandwidth / 1e12:.2f} TB/s; wires {hardware.inside_node / 1e9:.0f} GB/s of a device"
        f" inside a node of {hardware.devices_per_node}, {hardware.between_nodes / 1e9:.0f} GB/s of a node; of which "
        f"{hardware.moved:.0%} are",
        f"* {hardware.launch * 1e6:.0f} µs a launch and {hardware.latency * 1e6:.0f} µs a message",
    ]


def _subject(subject: Subject, hardware: Hardware) -> list[str]:
    trace, plan = subject.trace, subject.plan
    tokens, states = plan.micro_batch * plan.length, trace.states
    ways = "sharded (FSDP)" if plan.sharded else "replicated (DDP)"
    whole = states.total + states.gradients
    lines = [f"## `experiment={subject.name}`: {trace.parameters / 1e9:.2f} billion parameters, {ways}", ""]
    lines += [
        f"* a token of the text: {trace.forward_flops / tokens / 1e9:.2f} GFLOP forward and "
        f"{trace.backward_flops / tokens / 1e9:.2f} backward, {trace.flops / tokens / trace.parameters:.1f} per "
        f"parameter, {_single(trace):.0%} of them in float32",
        f"* kept between steps: {_gb(states.parameters)} GB weights, {_gb(states.gradients)} gradients, "
        f"{_gb(states.optimizer)} optimizer, {_gb(states.average)} average; {_gb(whole)} GB with DDP's "
        f"buckets on every GPU if nothing is sharded",
        f"* activations of a micro-batch of {plan.micro_batch} row(s): {_gb(trace.peak)} GB at most",
        f"* tensor parallelism over the 8 GPUs of a node would send "
        f"{_gb(_tensor_parallel(subject))} GB a micro-batch and GPU",
        "",
    ]
    strong, weak = fixed_batch(subject, hardware), fixed_share(subject, hardware)
    lines += ["The experiment's own batch:", "", *_table(strong), ""]
    said = f"{plan.micro_batch} row(s) a GPU: the batch grows with the GPUs, and the steps stay as many:"
    lines += [said, "", *_table(weak), ""]
    return lines


def _tensor_parallel(subject: Subject) -> float:
    """The two streams and the share of rows that is read a third time, over a micro-batch."""
    trace, plan = subject.trace, subject.plan
    tokens = plan.micro_batch * plan.length * (2 + trace.share / 2)
    return tensor_parallel_bytes(round(tokens), subject.width, subject.depth, 8)


def _single(trace: Trace) -> float:
    single = sum(n * one.flops for work in (trace.forward, trace.backward) for one, n in work.items() if not one.half)
    return single / sum(n * one.flops for work in (trace.forward, trace.backward) for one, n in work.items())


def _table(found: Mapping[int, Estimate | None]) -> list[str]:
    shares = shares_of_best(found)
    return markdown_table(Table("", COLUMNS, [_cells(n, one, shares.get(n, 0.0)) for n, one in found.items()]))[2:]


def shares_of_best(found: Mapping[int, Estimate | None]) -> dict[int, float]:
    """Tokens a second and device, over those of the number of devices that has most of them: what waiting for the wire
    and micro-batches too small for the device cost together."""
    each = {ranks: one.tokens_per_second / ranks for ranks, one in found.items() if one is not None}
    return {ranks: speed / max(each.values()) for ranks, speed in each.items()}


def _cells(ranks: int, found: Estimate | None, share: float) -> list[str]:
    if found is None:
        return [str(ranks), "more GPUs than rows", *["–"] * (len(COLUMNS) - 2)]
    plan, time = found.plan, found.time
    return [
        f"{ranks:,}",
        f"{plan.micro_batch} x {plan.accumulation}",
        f"{time.sent / 1e9:.2f}",
        f"{time.total:.3f} s",
        f"{time.exposed:.3f} s",
        f"{found.tokens_per_second / 1e3:,.0f} k",
        f"{share:.1%}",
        f"{found.utilisation:.0%}",
        f"{found.memory.total / 1e9:.1f}" + ("" if found.fits else " (too much)"),
        f"{found.days:,.1f}",
    ]


def _measured(record: dict[str, Any]) -> list[str]:
    columns = ["model", "clock", "what", "predicted", "measured", "predicted / measured"]
    rows = [
        [row["size"], row["clock"], row["what"], *(f"{row[key]:.3f}" for key in ("predicted", "measured", "ratio"))]
        for row in record["rows"]
    ]
    note = (
        f"Medians of {record['rounds']} interleaved rounds in two processes of one thread each on {record['cores']} "
        f"CPU cores, load average before it {record['load']}."
    )
    return [*markdown_table(Table("", columns, rows))[2:], "", note, ""]


def read_measured(file: Path) -> dict[str, Any] | None:
    """What `python -m celeris.scaling.measure --output` wrote, or None where it did not.

    Raises:
        CelerisError: the file is something else.
    """
    if not file.is_file():
        return None
    record = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(record, dict) or "rows" not in record:
        raise CelerisError(
            f"{file} holds no measurement; write it again with python -m celeris.scaling.measure --output."
        )
    return record


def draw(subjects: Sequence[Subject], hardware: Hardware, axes: Any) -> None:
    """`shares_of_best` over the number of devices: lines the experiment's own batch, dashes a batch that grows."""
    for number, subject in enumerate(subjects):
        for found, style, words in (
            (fixed_batch(subject, hardware), "-o", "own batch"),
            (fixed_share(subject, hardware), "--", "growing batch"),
        ):
            shares = shares_of_best(found)
            label = f"{subject.name}, {words}"
            axes.plot(list(shares), list(shares.values()), style, color=f"C{number}", markersize=4, label=label)
    axes.set(xscale="log", xlabel="GPUs", ylabel="tokens/s of a GPU, over the most", ylim=(0, 1.03))
    axes.set_xticks(DEVICES, [str(ranks) for ranks in DEVICES])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f}"
