"""Batches by sample counter: what a rank reads is a function of (seed, counter, rank), never of what it read before."""

import signal
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from celeris.batch import Batch
from celeris.data.layouts import Layout
from celeris.data.rows import EpochOrder, Rows
from celeris.errors import CelerisError


@dataclass
class MicroBatches(Dataset):
    """Micro-batch j of a rank, for counters [start, stop).

    Micro-batch j of all ranks together is the counters `start + j·M·W … start + (j+1)·M·W − 1` (M rows a rank, W
    ranks), each rank a run of M of them. So an optimizer step has the same samples, in the same micro-batches, for
    every number of ranks. Where M·W does not divide the range the last micro-batch is smaller, and of one size on all
    ranks: at most W − 1 counters after `stop` fill it.

    Attributes:
        order: counter to row; None reads row = counter modulo the number of rows (validation).
    """

    rows: Rows
    layout: Layout
    order: EpochOrder | None
    seed: int
    pad_id: int
    micro_batch_size: int
    start: int
    stop: int
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.micro_batch_size < 1:
            raise CelerisError(f"A batch must have at least one row, not {self.micro_batch_size}.")

    def __len__(self) -> int:
        return max(-(-(self.stop - self.start) // (self.micro_batch_size * self.world_size)), 0)

    def counters(self, j: int) -> np.ndarray:
        """(M,) int64 sample counters of micro-batch j; fewer for the last one."""
        first = self.start + j * self.micro_batch_size * self.world_size
        size = min(self.micro_batch_size, -(-(self.stop - first) // self.world_size))
        return first + self.rank * size + np.arange(size, dtype=np.int64)

    def __getitem__(self, j: int) -> Batch:
        if not 0 <= j < len(self):
            raise IndexError(j)
        counters = self.counters(j)
        rows = counters % len(self.rows) if self.order is None else self.order.rows(counters)
        return self.layout(self.rows[rows], torch.from_numpy(counters), seed=self.seed, pad_id=self.pad_id)


def batches(dataset: MicroBatches, num_workers: int = 0, pin_memory: bool = False) -> DataLoader:
    """A loader that yields the micro-batches in order, as they are."""
    return DataLoader(
        dataset,
        batch_size=None,
        shuffle=False,
        num_workers=num_workers,
        pin_memory=pin_memory,
        worker_init_fn=ignore_signals,
    )


def ignore_signals(worker: int) -> None:
    """What ends a run reaches its workers too, and they must live until the step is finished and saved."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
