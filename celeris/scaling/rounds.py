"""What one of two processes measures, turn by turn (`celeris.scaling.measure` starts them)."""

import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from celeris.language_model import LanguageModel
from celeris.scaling.small import SIZES, Size, Step, batch_of, optimizer_of, spec_of
from celeris.training.ema import EMA


def main() -> None:
    """Arguments: rank, file of the rendezvous, rounds, file for rank 0's figures."""
    rank, meeting, rounds, output = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meeting}", timedelta(minutes=10), world_size=2, rank=rank)
    found = [measure_size(size, rank, rounds) for size in SIZES]
    if rank == 0:
        output.write_text(json.dumps(found))
    dist.destroy_process_group()


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
"""Seconds that go by, and those in which this process computes: others on the machine disturb only the first."""


def measure_size(size: Size, rank: int, rounds: int) -> dict[str, Any]:
    """Median seconds by clock and name; the processes take turns, or work together, in every round."""
    torch.manual_seed(0)
    model = LanguageModel.from_spec(spec_of(size))
    alone = step_of(model, Step(model), size, rank)
    both = step_of(model, DistributedDataParallel(Step(model), find_unused_parameters=True), size, rank)
    products, traffic, launch = product_of(size), traffic_of(size), launch_of()
    gradients, one = torch.zeros(sum(p.numel() for p in model.parameters())), torch.zeros(1)
    turns: dict[str, tuple[bool, Callable[[], Any]]] = {  # name -> (both processes at once, what)
        "one process": (False, alone),
        "products": (False, products),
        "traffic": (False, traffic),
        "launch": (False, launch),
        "two processes": (True, both),
        "two apart": (True, alone),
        "products of two": (True, products),
        "traffic of two": (True, traffic),
        "launch of two": (True, launch),
        "sum": (True, lambda: dist.all_reduce(gradients)),
        "small sum": (True, lambda: dist.all_reduce(one)),
    }
    times: dict[str, dict[str, list[float]]] = {clock: {name: [] for name in turns} for clock in CLOCKS}
    for _ in range(rounds + 1):  # the first one warms up
        for name, (all_at_once, work) in turns.items():
            dist.barrier()
            began = {clock: now() for clock, now in CLOCKS.items()}
            if all_at_once or rank == 0:
                work()
            for clock, now in CLOCKS.items():
                times[clock][name].append(now() - began[clock])
    seconds = {clock: {name: median(each[1:]) for name, each in found.items()} for clock, found in times.items()}
    return {"size": str(size), "parameters": model.num_parameters, "seconds": seconds}


def step_of(model: LanguageModel, forward: nn.Module, size: Size, rank: int) -> Callable[[], None]:
    """A whole training step: loss, backward, clipping, optimizer, average."""
    optimizer, ema, count = optimizer_of(model), EMA(0.99), [0]

    def step() -> None:
        count[0] += 1
        loss = forward(batch_of(size, first=size.rows * (2 * count[0] + rank)))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert bool(norm.isfinite())
        optimizer.step()
        optimizer.zero_grad()
        ema.update(model, count[0])

    return step


def product_of(size: Size) -> Callable[[], None]:
    """Products of the sizes that a layer and the head have; their arithmetic is `product_flops`."""
    rows, width = size.rows * size.length, size.width
    x = torch.randn(rows, width)
    weights = [torch.randn(width, out) for out in (3 * width, width, 5 * width, size.vocab_size)]

    def products() -> None:
        for weight in weights:
            y = x @ weight
            y @ weight.T

    return products


def product_flops(size: Size) -> int:
    return 2 * 2 * size.rows * size.length * size.width * (9 * size.width + size.vocab_size)


def traffic_of(size: Size) -> Callable[[], None]:
    """Twenty sums of two activations into a third; `traffic_bytes`."""
    a, b = (torch.randn(size.rows * size.length, 4 * size.width) for _ in range(2))

    def traffic() -> None:
        for _ in range(20):
            a + b

    return traffic


def traffic_bytes(size: Size) -> int:
    return 20 * 3 * 4 * size.rows * size.length * 4 * size.width


LAUNCHES = 400


def launch_of() -> Callable[[], None]:
    """`LAUNCHES` operations on one number, half of them in backward."""
    number = torch.ones(1, requires_grad=True)

    def launch() -> None:
        y = number
        for _ in range(LAUNCHES // 2):
            y = y * 1.0
        y.backward()

    return launch


if __name__ == "__main__":
    main()
