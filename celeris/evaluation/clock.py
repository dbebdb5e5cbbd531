"""At which canvas times the bound's integral is sampled: a density of the clock, measured or uniform.

The bound is an integral over the whole path, ∫₀¹ f(t) dt, so t may be drawn from any density q and each draw counted
f(t)/q(t) times: only the variance changes, and it is least where q follows f. Under a training schedule f is far from
flat. Towards the data it is the product of rare errors and a huge slope; a path measured in fixed units of t spends
most of its draws where nothing happens.
"""

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.noise.path import canvas_levels
from celeris.typing import Gamma

REFINE = 8


class Path(Protocol):
    """The part of a schedule that likelihoods read."""

    def gamma(self, t: Tensor) -> Gamma: ...

    def t(self, gamma: Gamma) -> Tensor: ...

    def slope(self, t: Tensor) -> Tensor: ...


class Draw(NamedTuple):
    """Canvas times and what a sample taken there counts, 1/q(t)."""

    t: Tensor
    weight: Tensor


class Clock:
    """A piecewise-constant density of the canvas time.

    Args:
        edges: (K+1,) increasing, from 0 to 1.
        mass: (K,) probability of each piece up to a common factor, positive.
    """

    def __init__(self, edges: Tensor, mass: Tensor) -> None:
        self.edges = edges.double()
        self.cdf = F.pad((mass.double() / mass.double().sum()).cumsum(0), (1, 0))
        self.density = (self.cdf[1:] - self.cdf[:-1]) / (self.edges[1:] - self.edges[:-1])

    def draw(self, quantile: Tensor) -> Draw:
        """The time below which `quantile` (…) of the mass lies."""
        piece = torch.searchsorted(self.cdf, quantile.contiguous(), right=True).clamp(1, len(self.density)) - 1
        t = self.edges[piece] + (quantile - self.cdf[piece]) / self.density[piece]
        return Draw(t.clamp(0, 1), 1 / self.density[piece])


def uniform_clock() -> Clock:
    """Every canvas time alike."""
    return Clock(torch.tensor([0.0, 1.0]), torch.ones(1))


def measured_clock(
    schedule: Path, edges: Gamma, rate: Tensor, block_length: int, stagger: float, defence: float = 0.5
) -> Clock:
    """The density that follows a measured integrand, for a canvas of C positions.

    Each position has the density of its own level u_k that follows `rate`; the clock's is the mean over the positions.
    A share `defence`, half of it uniform in gamma and half in u, covers what the measurement missed (an error too rare
    for a pilot to meet still counts in full when a draw meets it): no draw counts for more than 2/defence even ones.

    Args:
        schedule: gamma(u), from edges[0] to edges[-1].
        edges: (K+1,) gammas.
        rate: (K,) nats per unit of gamma between them.
        block_length, stagger: C and s of the canvas (`celeris.noise.path`).
        defence: see above.
    """
    # A piece is even in u, and slopes can change severalfold inside one bin of the measurement: cut it finer.
    shares = torch.arange(REFINE, dtype=torch.float64, device=edges.device) / REFINE
    fine = edges[:-1, None] + (edges[1:] - edges[:-1])[:, None] * shares
    edges, rate = torch.cat([fine.flatten(), edges[-1:]]), rate.repeat_interleave(REFINE)
    u = schedule.t(edges.double())
    u[0], u[-1] = 0.0, 1.0
    width, step = edges[1:] - edges[:-1], u[1:] - u[:-1]
    mass = (1 - defence) * rate * width / (rate * width).sum().clamp_min(1e-300)
    mass = mass + 0.5 * defence * (width / width.sum() + step)
    # Pieces that float64 cannot tell apart in u join the one before them.
    group = ((step > 0).cumsum(0) - 1).clamp_min(0)
    u = torch.cat([u[:1], u[1:][step > 0]])
    mass = torch.zeros(len(u) - 1, dtype=mass.dtype, device=mass.device).index_add_(0, group, mass)
    if stagger == 0 or block_length == 1:
        return Clock(u, mass)
    density = mass / (u[1:] - u[:-1])
    waiting = stagger * (1 - torch.arange(block_length, device=u.device, dtype=u.dtype) / (block_length - 1))
    cuts = ((u + waiting[:, None]) / (1 + stagger)).unique()
    levels = canvas_levels((cuts[1:] + cuts[:-1]) / 2, block_length, stagger)
    here = torch.searchsorted(u, levels.u.contiguous(), right=True).clamp(1, len(density)) - 1
    return Clock(cuts, (density[here] * levels.speed).mean(-1) * (cuts[1:] - cuts[:-1]))
