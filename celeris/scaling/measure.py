"""Predicted against measured, on this machine: `python -m celeris.scaling.measure`.

A small model's real training step is run in one process and in two (gloo). Beside it, turn by turn in the same
processes, what the formulae are fed with: products of the sizes that occur, traffic, an operation on one number, sums
over the processes. So whatever else the machine does, it does to both; what counts is the ratio. Seconds are taken by
the wall and by the processor's time of the process; only the second says something on a machine that is busy otherwise.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from celeris.scaling.collectives import all_reduce_bytes
from celeris.scaling.hardware import Hardware
from celeris.scaling.plan import Plan
from celeris.scaling.rounds import LAUNCHES, product_flops, traffic_bytes
from celeris.scaling.small import SIZES, Size, trace_of
from celeris.scaling.step_time import step_time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, help="a .json file for the figures")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    found = [row for size, one in zip(SIZES, run(arguments.rounds), strict=True) for row in compare(size, one)]
    table = Table("model", "clock", "what", "predicted", "measured", "predicted / measured")
    for row in found:
        table.add_row(
            row["size"], row["clock"], row["what"], *(f"{row[key]:.3f}" for key in ("predicted", "measured", "ratio"))
        )
    console = Console(width=130)
    console.print(table)
    console.print(f"load average before: {before:.1f} on {os.cpu_count()} cores; medians of {arguments.rounds} rounds")
    if arguments.output is not None:
        record = {"rounds": arguments.rounds, "load": round(before, 1), "cores": os.cpu_count(), "rows": found}
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


def run(rounds: int) -> list[dict[str, Any]]:
    """Start the two processes and wait for both; seconds by name for each of `SIZES`."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "figures.json"
        words = [sys.executable, "-m", "celeris.scaling.rounds"]
        started = [
            subprocess.Popen(
                [*words, str(rank), f"{folder}/meeting", str(rounds), str(output)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for rank in range(2)
        ]
        if any([process.wait() for process in started]):
            raise SystemExit("A process of the measurement failed; what it said stands above.")
        found: list[dict[str, Any]] = json.loads(output.read_text())
        return found


def compare(size: Size, found: dict[str, Any]) -> list[dict[str, Any]]:
    """By each clock, seconds of a step of one process and of two, and the share of it that is no communication."""
    trace, rows = trace_of(size), []
    for clock, times in found["seconds"].items():
        one = step_time(trace, plan_of(size, 1), hardware_of(size, found["parameters"], times, ""))
        two = step_time(trace, plan_of(size, 2), hardware_of(size, found["parameters"], times, " of two"))
        for what, predicted, measured in (
            ("seconds, one process", one.total, times["one process"]),
            ("seconds, two processes", two.total, times["two processes"]),
            ("efficiency of two", two.efficiency, times["two apart"] / times["two processes"]),
        ):
            figures = {"predicted": predicted, "measured": measured, "ratio": predicted / measured}
            rows.append({"size": str(size), "clock": clock, "what": what, **figures})
    return rows


def plan_of(size: Size, ranks: int) -> Plan:
    return Plan(ranks, False, size.rows, size.rows * ranks, size.length, 1)


def hardware_of(size: Size, parameters: int, times: dict[str, float], suffix: str) -> Hardware:
    """One process, as it was measured while it was alone (suffix "") or beside the other (" of two")."""
    speed = product_flops(size) / times["products" + suffix]
    # A sum of one number is nothing but its messages; the rest of a sum of all gradients is the wire.
    latency = times["small sum"] / 2
    sent = all_reduce_bytes(4 * parameters, 2)
    wire = sent / max(times["sum"] - times["small sum"], 1e-9)
    return Hardware(
        name="this machine",
        half_flops=speed,
        single_flops=speed,
        memory=1e12,
        memory_bandwidth=traffic_bytes(size) / times["traffic" + suffix],
        devices_per_node=2,
        inside_node=wire,
        between_nodes=wire,
        reached=1.0,
        moved=1.0,
        hides=0.0,
        launch=times["launch" + suffix] / LAUNCHES,
        latency=latency,
    )


if __name__ == "__main__":
    main()
