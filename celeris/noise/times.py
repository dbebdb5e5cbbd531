"""The clock of a block, t ∈ [0, 1]: where its uniform number comes from, and how that number is bent.

Numbers depend on (seed, sample index) only, and on a law's own history, never on how a batch is laid out.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from celeris.errors import CelerisError
from celeris.noise.online import OnlineFit
from celeris.streams import generator, stream
from celeris.typing import Mask

_GOLDEN = -7046029254386353131  # 2⁶⁴ / golden ratio, as a signed 64-bit integer


def golden_uniform(counter: Tensor, offset: int) -> Tensor:
    """frac(offset/2⁶³ + counter/φ) in float64, exact for any 64-bit counter (integer arithmetic modulo 2⁶⁴)."""
    mixed = counter.long() * _GOLDEN + offset
    return ((mixed >> 11) & ((1 << 53) - 1)).double() / (1 << 53)


class Times(NamedTuple):
    """Times in [0, 1], float64, and what a loss at each of them counts; both have one shape."""

    t: Tensor
    weight: Tensor


class TimeLaw(nn.Module):
    """A law of times. This one is uniform; a subclass replaces the uniform numbers, or bends them, or learns."""

    def uniforms(self, index: Tensor, blocks: int, seed: int) -> Tensor:
        """Numbers in [0, 1) of the rows `index` (B,), one a block, on the CPU: (B, N) float64.

        The golden-ratio sequence in the global sample index: consecutive rows are spread evenly (low discrepancy, as
        VDM 2107.00630 appendix I.1 wants).
        """
        return golden_uniform(index[:, None] * blocks + torch.arange(blocks), stream(seed, "time"))

    def bend(self, uniform: Tensor) -> Times:
        """Uniform numbers of any shape → times of this law."""
        return Times(uniform, torch.ones_like(uniform))

    def fit(self, u: Tensor, loss: Tensor, counted: Mask) -> None:
        """Learn from what a step saw, all (B, N, C): schedule times, losses, and which of them took part."""


class Stratified(TimeLaw):
    """Uniform in t, evenly spread over consecutive samples."""


class Uniform(TimeLaw):
    """Uniform in t, independent for each sample and block."""

    def uniforms(self, index: Tensor, blocks: int, seed: int) -> Tensor:
        rows = [
            torch.rand(blocks, dtype=torch.float64, generator=generator(seed, "time", key)) for key in index.tolist()
        ]
        return torch.stack(rows)


class LogitNormal(TimeLaw):
    """t = sigmoid(N(mean, std²)), by its quantile function, so it stays stratified (ELF 2605.10938; SD3 2403.03206).

    A law of its own, not a way to estimate the uniform one: losses keep weight 1.

    Args:
        mean, std: of logit t, t = 1 at noise. A law written for a clock with its data at 1 has −mean here.
    """

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        if std <= 0:
            raise CelerisError(f"std={std} of LogitNormal must be above 0; Stratified is the law without one.")
        self.mean, self.std = mean, std

    def bend(self, uniform: Tensor) -> Times:
        t = torch.sigmoid(self.mean + self.std * torch.special.ndtri(uniform))
        return Times(t, torch.ones_like(t))


class LossAware(TimeLaw, OnlineFit):
    """Importance sampling by loss: p(t) ∝ √E[loss² | t], weights 1/p(t) (Improved DDPM 2102.09672, section 3.3).

    The paper's per-step history is a running mean on equal bins of t here. p is constant on a bin, so t comes from a
    stratified uniform by a piecewise-linear quantile function, and E[weight·f(t)] = ∫ f exactly. Until every bin has
    its first observations p is uniform. A loss that is not finite is passed over: one NaN in the history would be in
    every probability.

    Args:
        bins: pieces of [0, 1].
        uniform: share of the uniform law in p; weights are below 1/uniform.
        memory: observations that a bin's mean remembers.
        warm_up: observations every bin needs before p moves.
    """

    mean_square: Tensor
    seen: Tensor

    def __init__(self, bins: int = 64, uniform: float = 0.1, memory: int = 10_000, warm_up: int = 10) -> None:
        super().__init__()
        if not 0 < uniform <= 1:
            raise CelerisError(f"uniform={uniform} of LossAware must be in (0, 1], or weights have no limit.")
        self.bins, self.uniform, self.memory, self.warm_up = bins, uniform, memory, warm_up
        self.register_buffer("mean_square", torch.zeros(bins))
        self.register_buffer("seen", torch.zeros(bins))

    @property
    def shares(self) -> Tensor:
        """Probability of each bin, (bins,) float64."""
        size = self.mean_square.double().sqrt()
        size = torch.where((self.seen >= self.warm_up).all() & (size.sum() > 0), size, torch.ones_like(size))
        return (1 - self.uniform) * size / size.sum() + self.uniform / self.bins

    @torch.no_grad()
    def bend(self, uniform: Tensor) -> Times:
        shares = self.shares.to(uniform.device)
        edges = shares.cumsum(0)
        piece = torch.searchsorted(edges, uniform.contiguous(), right=True).clamp_max(self.bins - 1)
        inside = (uniform - (edges - shares)[piece]) / shares[piece]
        return Times((piece + inside.clamp(0, 1)) / self.bins, 1 / (self.bins * shares[piece]))

    @torch.no_grad()
    def fit(self, u: Tensor, loss: Tensor, counted: Mask) -> None:
        square = loss.float().square()
        usable = (counted & torch.isfinite(square)).flatten()
        bins = (u.flatten() * self.bins).long().clamp(0, self.bins - 1)
        square = torch.where(usable, square.flatten(), 0.0).double()  # a sum of finite squares may overflow float32
        self.see(self.nothing().index_add_(1, bins, torch.stack([usable.double(), square])))

    def nothing(self) -> Tensor:
        return torch.zeros(2, self.bins, dtype=torch.float64, device=self.seen.device)

    def learn(self, sums: Tensor) -> None:
        count, square = sums
        self.seen += count.to(self.seen.dtype)
        step = (count / self.seen.clamp_max(self.memory).clamp_min(1)).clamp_max(1)
        self.mean_square += (step * (square / count.clamp_min(1) - self.mean_square)).to(self.seen.dtype)
