"""Noise level → conditioning vector."""

import math

import torch
from torch import Tensor, nn

from celeris.streams import generator
from celeris.typing import Gamma


class LevelEmbedding(nn.Module):
    """clean + MLP(sinusoidal features of gamma), where `clean` is the learned vector of context and given positions.

    The MLP's last layer starts at zero: a noisy position begins by being treated as a clean one.

    Args:
        dim: width of the conditioning vector.
        features: number of sinusoidal features (even).
        span: gamma/span is turned through the sinusoids; ±16 covers every schedule in use.
    """

    def __init__(self, dim: int, features: int = 64, span: float = 16.0) -> None:
        super().__init__()
        self.features, self.span = features, span
        last = nn.Linear(dim, dim)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.mlp = nn.Sequential(nn.Linear(features, dim), nn.SiLU(), last)
        self.clean = nn.Parameter(torch.randn(dim, generator=generator(0, "clean level")))

    def forward(self, gamma: Gamma) -> Tensor:
        """(*levels) → (*levels, dim)."""
        rates = torch.logspace(0, math.log10(100.0), self.features // 2, device=gamma.device)
        angle = gamma.float()[..., None] / self.span * rates
        return self.clean + self.mlp(torch.cat([angle.cos(), angle.sin()], -1))
