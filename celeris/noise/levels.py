"""Which noise levels a training batch sees: a mixture of simple laws, one law a row.

Times come from a golden-ratio sequence in the global sample index, so they are spread evenly over consecutive rows
(low discrepancy, as VDM 2107.00630 appendix I.1 wants) and yet depend on (seed, index) only, not on the batch.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from celeris.noise.path import canvas_levels
from celeris.streams import generator, stream

_GOLDEN = -7046029254386353131  # 2⁶⁴ / golden ratio, as a signed 64-bit integer


@runtime_checkable
class LevelLaw(Protocol):
    """Levels of a canvas from its clock t (B, N) and free uniforms (B, N, C) → (B, N, C)."""

    def __call__(self, t: Tensor, free: Tensor) -> Tensor: ...


class Together:
    """All positions of a block at one level."""

    def __call__(self, t: Tensor, free: Tensor) -> Tensor:
        return t[..., None].expand_as(free)


class PerToken:
    """An independent level per position (DSL 2605.12836)."""

    def __call__(self, t: Tensor, free: Tensor) -> Tensor:
        return free


class Staggered:
    """Positions start one after another (`celeris.noise.path`), the stagger uniform in [low, high] per block."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def __call__(self, t: Tensor, free: Tensor) -> Tensor:
        stagger = self.low + (self.high - self.low) * free[..., 0]
        return canvas_levels(t, free.shape[-1], stagger).u


class RowNoise(NamedTuple):
    """Random numbers of a batch: levels u (B, N, C), eps (B, N, C, D), and a coin in [0, 1) per row."""

    u: Tensor
    eps: Tensor
    coins: list[float]


class LevelMixture:
    """Each row takes one law, with the given weights; all its random numbers come from (seed, index)."""

    def __init__(self, laws: Sequence[LevelLaw], weights: Sequence[float]) -> None:
        self.laws = list(laws)
        self.edges = torch.tensor(weights, dtype=torch.float64).cumsum(0) / sum(weights)

    def draw(self, index: Tensor, blocks: int, length: int, dim: int, seed: int, device: torch.device) -> RowNoise:
        """Random numbers of the rows `index` (B,) (on the CPU): N = blocks, C = length, D = dim."""
        rows = index.tolist()
        eps = torch.empty(len(rows), blocks, length, dim, device=device)
        free = torch.empty(len(rows), blocks, length, dtype=torch.float64)
        pick = torch.empty(len(rows), dtype=torch.float64)
        coins = []
        for row, key in enumerate(rows):
            small = generator(seed, "levels", key)
            free[row].uniform_(generator=small)
            pick[row].uniform_(generator=small)
            coins.append(float(torch.rand((), generator=small)))
            eps[row].normal_(generator=generator(seed, "noise", key, device))
        t = golden_uniform(index[:, None] * blocks + torch.arange(blocks), stream(seed, "time"))
        choice = torch.searchsorted(self.edges, pick, right=True).clamp_max(len(self.laws) - 1)
        u = torch.zeros_like(free)
        for number, law in enumerate(self.laws):
            u = torch.where((choice == number)[:, None, None], law(t, free), u)
        return RowNoise(u.to(device, torch.float32, non_blocking=True), eps, coins)


def golden_uniform(counter: Tensor, offset: int) -> Tensor:
    """frac(offset/2⁶³ + counter/φ) in float64, exact for any 64-bit counter (integer arithmetic modulo 2⁶⁴)."""
    mixed = counter.long() * _GOLDEN + offset
    return ((mixed >> 11) & ((1 << 53) - 1)).double() / (1 << 53)
