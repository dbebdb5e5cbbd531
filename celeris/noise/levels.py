"""Which noise levels a training batch sees: a mixture of simple laws, one law a row, over a law of the clock."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from celeris.errors import CelerisError
from celeris.noise.path import canvas_levels
from celeris.noise.times import Stratified, TimeLaw, Times
from celeris.streams import generator
from celeris.typing import Mask


@runtime_checkable
class LevelLaw(Protocol):
    """Levels of the canvas positions, (B, N, C).

    Args:
        clock: of each block, (B, N).
        own: an independent time of each position under the same law of times, (B, N, C).
        free: the uniform numbers `own` was made of, for everything that is not a time; a law uses `own` or `free`.
        widths: positions of each block that are real, (B, N); what lies behind them is padding.
    """

    def __call__(self, clock: Times, own: Times, free: Tensor, widths: Tensor) -> Times: ...


class Together:
    """All positions of a block at one level."""

    def __call__(self, clock: Times, own: Times, free: Tensor, widths: Tensor) -> Times:
        return _spread(clock.t, clock, free)


class PerToken:
    """An independent level per position (DSL 2605.12836)."""

    def __call__(self, clock: Times, own: Times, free: Tensor, widths: Tensor) -> Times:
        return own


class Staggered:
    """Positions start one after another (`celeris.noise.path`), the stagger uniform in [low, high] per block."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def __call__(self, clock: Times, own: Times, free: Tensor, widths: Tensor) -> Times:
        stagger = self.low + (self.high - self.low) * free[..., 0]
        return Times(canvas_levels(clock.t, free.shape[-1], stagger, widths).u, _spread(clock.t, clock, free).weight)


class Masked:
    """Each position is clean, or as good as pure noise with a chance equal to the clock: masked diffusion's corruption.

    Args:
        noise: level of the noised positions, below 1 (at 1 a position waits and earns no loss).
    """

    def __init__(self, noise: float = 1 - 1e-4) -> None:
        if not 0 < noise < 1:
            raise CelerisError(f"noise={noise} of Masked must be in (0, 1): positions at either end earn no loss.")
        self.noise = noise

    def __call__(self, clock: Times, own: Times, free: Tensor, widths: Tensor) -> Times:
        noised = free < clock.t[..., None]
        return _spread(torch.where(noised, self.noise, 0.0).to(free.dtype), clock, free)


def _spread(u: Tensor, clock: Times, free: Tensor) -> Times:
    """Levels u, (B, N) or (B, N, C), with the block's weight at each of its positions."""
    u = u if u.shape == free.shape else u[..., None].expand_as(free)
    return Times(u, clock.weight[..., None].expand_as(free))


class RowNoise(NamedTuple):
    """Random numbers of a batch.

    Attributes:
        u: (B, N, C) schedule time of each position, float32.
        eps: (B, N, C, D).
        coins: a number in [0, 1) per row.
        weight: (B, N, C) what a position's loss counts, float32: 1, or under importance sampling 1/p.
    """

    u: Tensor
    eps: Tensor
    coins: list[float]
    weight: Tensor


class LevelMixture(nn.Module):
    """Each row takes one law, with the given weights; all its random numbers come from (seed, index).

    Args:
        laws, weights: one weight a law, ≥ 0.
        times: law of the clock; `Stratified()` when None.
    """

    def __init__(self, laws: Sequence[LevelLaw], weights: Sequence[float], times: TimeLaw | None = None) -> None:
        super().__init__()
        if len(laws) != len(weights) or sum(weights) <= 0 or min(weights) < 0:
            raise CelerisError(f"weights={list(weights)} do not fit {len(laws)} laws: give each one a weight ≥ 0.")
        self.laws = list(laws)
        self.times = Stratified() if times is None else times
        self.edges = torch.tensor(weights, dtype=torch.float64).cumsum(0) / sum(weights)

    def draw(
        self,
        index: Tensor,
        blocks: int,
        length: int,
        dim: int,
        seed: int,
        device: torch.device,
        largest: tuple[int, int] | None = None,
        widths: Tensor | None = None,
    ) -> RowNoise:
        """Random numbers of the rows `index` (B,) (on the CPU): N = blocks, C = length, D = dim.

        Args:
            largest: N and C of the largest canvas there can be, where they differ from batch to batch. As many numbers
                are drawn, or what a row draws would depend on the rows beside it.
            widths: (B, N) positions of each block before its padding; None: all C.
        """
        rows = index.tolist()
        most = largest or (blocks, length)
        eps = torch.empty(len(rows), *most, dim, device=device)
        free = torch.empty(len(rows), *most, dtype=torch.float64)
        pick = torch.empty(len(rows), dtype=torch.float64)
        coins = []
        for row, key in enumerate(rows):
            small = generator(seed, "levels", key)
            free[row].uniform_(generator=small)
            pick[row].uniform_(generator=small)
            coins.append(float(torch.rand((), generator=small)))
            eps[row].normal_(generator=generator(seed, "noise", key, device))
        # Bent on the device, where a law of times keeps its history: no step has to wait for a copy of it.
        eps, free = eps[:, :blocks, :length], free[:, :blocks, :length]
        times = self.times.uniforms(index, most[0], seed)[:, :blocks]
        clock = self.times.bend(times.to(device, non_blocking=True))
        choice = torch.searchsorted(self.edges, pick, right=True).clamp_max(len(self.laws) - 1)
        free, choice = free.to(device, non_blocking=True), choice.to(device, non_blocking=True)
        own = self.times.bend(free)
        widths = torch.full(free.shape[:2], length, device=device) if widths is None else widths
        u, weight = torch.zeros_like(free), torch.ones_like(free)
        for number, law in enumerate(self.laws):
            chosen, levels = (choice == number)[:, None, None], law(clock, own, free, widths)
            u, weight = torch.where(chosen, levels.t, u), torch.where(chosen, levels.weight, weight)
        return RowNoise(u.float(), eps, coins, weight.float())

    def fit(self, u: Tensor, loss: Tensor, counted: Mask) -> None:
        """Let the law of times learn from a training step, all (B, N, C); a fixed one learns nothing."""
        self.times.fit(u, loss.detach(), counted)
