"""Noise level → conditioning vector."""

import math

import torch
from torch import Tensor, nn

from celeris.typing import Gamma


class LevelEmbedding(nn.Module):
    """Sinusoidal features of gamma and a two-layer MLP, plus one learned vector for clean (context, given) positions.

    Args:
        dim: width of the conditioning vector.
        features: number of sinusoidal features (even).
        span: gamma/span is turned through the sinusoids; ±16 covers every schedule in use.
    """

    def __init__(self, dim: int, features: int = 64, span: float = 16.0) -> None:
        super().__init__()
        self.features, self.span = features, span
        self.mlp = nn.Sequential(nn.Linear(features, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.clean = nn.Parameter(torch.zeros(dim))

    def forward(self, gamma: Gamma) -> Tensor:
        """(*levels) → (*levels, dim)."""
        rates = torch.logspace(0, math.log10(100.0), self.features // 2, device=gamma.device)
        angle = gamma.float()[..., None] / self.span * rates
        return self.mlp(torch.cat([angle.cos(), angle.sin()], -1))
