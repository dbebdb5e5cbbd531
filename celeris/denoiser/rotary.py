"""Rotary position embedding (RoFormer, 2104.09864), with angles that stay float32 whatever the model's dtype."""

from typing import NamedTuple

import torch
from torch import Tensor


class Rotary(NamedTuple):
    """cos and sin of the angles, (B, 1, T, head_dim/2) float32."""

    cos: Tensor
    sin: Tensor


def rotary(positions: Tensor, head_dim: int, base: float = 10_000.0) -> Rotary:
    """Angles at integer `positions` (B, T), built from scratch in float32: no buffer that `.to(bf16)` could round."""
    half = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angle = positions[:, None, :, None].float() * base**-half
    return Rotary(angle.cos(), angle.sin())


def rotate(x: Tensor, angles: Rotary) -> Tensor:
    """Rotate the pairs (x_i, x_{i+d/2}) of x (B, heads, T, head_dim)."""
    left, right = x.float().chunk(2, dim=-1)
    out = torch.cat([left * angles.cos - right * angles.sin, right * angles.cos + left * angles.sin], dim=-1)
    return out.to(x.dtype)
