"""Rows of token ids on disk, and the order in which training visits them."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from celeris.streams import generator
from celeris.typing import Int


@dataclass
class Rows:
    """`count` rows of `length` tokens in a memory-mapped file; nothing is read before it is asked for.

    Attributes:
        file: raw little-endian integers of type `dtype`, row after row.
        starts: (documents,) int64, position in the stream of rows (row · length + column) where each document begins.
    """

    file: Path
    count: int
    length: int
    dtype: str
    starts: np.ndarray
    _map: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: "np.ndarray | list[int] | slice | int") -> Int[Tensor, "..."]:
        """int64 ids of the rows asked for: (L,) for one number, (n, L) otherwise."""
        if self._map is None:  # opened on first use, so that a copy sent to a loader process opens its own
            self._map = np.memmap(self.file, dtype=self.dtype, mode="r", shape=(self.count, self.length))
        return torch.from_numpy(np.asarray(self._map[rows], dtype=np.int64))

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_map": None}


@dataclass
class EpochOrder:
    """Which row the sample counter means: counter = epoch · count + position, a new permutation each epoch.

    The order is a function of (seed, counter) and of nothing else, so resuming a run needs one integer.
    """

    seed: int
    count: int
    _epoch: int = field(default=-1, init=False, repr=False, compare=False)
    _permutation: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)

    def rows(self, counters: np.ndarray) -> np.ndarray:
        """(n,) row numbers of (n,) sample counters."""
        epochs, positions = np.divmod(counters, self.count)
        rows = np.empty_like(counters)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            rows[here] = self.permutation(int(epoch))[positions[here]]
        return rows

    def permutation(self, epoch: int) -> np.ndarray:
        """(count,) the order of one epoch."""
        if self._permutation is None or self._epoch != epoch:
            order = torch.randperm(self.count, generator=generator(self.seed, "order", epoch)).numpy()
            self._permutation, self._epoch = order, epoch
            return order
        return self._permutation
