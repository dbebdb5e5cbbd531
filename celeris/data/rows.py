"""Rows of token ids on disk, and the order in which training visits them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from celeris.streams import generator
from celeris.typing import Int


@dataclass
class Rows:
    """`count` rows of `length` tokens in memory-mapped files; nothing is read before it is asked for.

    Attributes:
        files: raw little-endian integers of type `dtype`: together one stream of tokens. Row r is its tokens
            r·length … (r+1)·length − 1, so a row may begin in one file and end in a later one.
        sizes: tokens of each file.
    """

    files: Sequence[Path]
    sizes: Sequence[int]
    count: int
    length: int
    dtype: str
    _maps: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._ends = np.cumsum(np.asarray(self.sizes, dtype=np.int64))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: "np.ndarray | list[int] | slice | int") -> Int[Tensor, "..."]:
        """int64 ids of the rows asked for: (L,) for one number, (n, L) otherwise."""
        numbers = np.arange(*rows.indices(self.count)) if isinstance(rows, slice) else np.asarray(rows, dtype=np.int64)
        numbers = np.where(numbers < 0, numbers + self.count, numbers)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= self.count):
            raise IndexError(f"row {rows} of {self.count}")
        out = np.empty((numbers.size, self.length), dtype=np.int64)
        for row, start in zip(out, (numbers * self.length).ravel().tolist(), strict=True):
            self.read(start, row)
        return torch.from_numpy(out.reshape(*numbers.shape, self.length))

    def read(self, start: int, out: np.ndarray) -> None:
        """Fill `out`, (n,), with the tokens of the stream from position `start` on."""
        file = int(np.searchsorted(self._ends, start, side="right"))
        place = start - (int(self._ends[file - 1]) if file else 0)
        filled = 0
        while filled < len(out):
            part = self._map(file)[place : place + len(out) - filled]
            out[filled : filled + len(part)] = part
            filled, file, place = filled + len(part), file + 1, 0

    def _map(self, file: int) -> np.ndarray:
        if file not in self._maps:  # opened on first use, so that a copy sent to a loader process opens its own
            empty = self.sizes[file] == 0
            self._maps[file] = (
                np.empty(0, dtype=self.dtype) if empty else np.memmap(self.files[file], dtype=self.dtype, mode="r")
            )
        return self._maps[file]

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_maps": {}}


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
