"""The exact cache of the clean context: what every denoising step reads and no denoising step changes."""

from dataclasses import dataclass

import torch
from torch import Tensor

GROWTH = 64


@dataclass
class LayerContext:
    """One layer's context at absolute positions 0 … S−1.

    Attributes:
        keys, values: (B, heads, S, head_dim), keys already rotated.
        taps: (B, S, H) inputs of the local convolution, or None for a layer without one.
    """

    keys: Tensor
    values: Tensor
    taps: Tensor | None


@dataclass
class Context:
    """All layers, how much of each row is real (`lengths`, (B,)), and the final states `hidden` (B, S, H), which
    predict the next token.

    Rows may differ in length: what lies at or beyond `lengths` is never seen by anyone.
    """

    lengths: Tensor
    layers: list[LayerContext]
    hidden: Tensor

    @property
    def size(self) -> int:
        """S, the allocated positions."""
        return self.hidden.shape[1]

    def detach(self) -> "Context":
        """The same context outside the graph (for the gradient-free self-conditioning pass)."""
        layers = [
            LayerContext(x.keys.detach(), x.values.detach(), None if x.taps is None else x.taps.detach())
            for x in self.layers
        ]
        return Context(self.lengths, layers, self.hidden.detach())

    def rows(self, index: Tensor) -> "Context":
        """The rows `index` only."""
        layers = [
            LayerContext(x.keys[index], x.values[index], None if x.taps is None else x.taps[index]) for x in self.layers
        ]
        return Context(self.lengths[index], layers, self.hidden[index])


def grown(size: int, positions: Tensor) -> int:
    """Buffer length that holds the absolute `positions`: `size`, or more with spare room (a decoder seldom copies)."""
    needed = int(positions.max()) + 1 if positions.numel() else 0
    return size if needed <= size else max(needed, size + GROWTH)


def write(buffer: Tensor, new: Tensor, positions: Tensor, size: int, dim: int) -> Tensor:
    """`buffer` grown to `size` along `dim`, with `new` written at each row's own absolute `positions` (B, T)."""
    if size > buffer.shape[dim]:
        shape = list(buffer.shape)
        shape[dim] = size - buffer.shape[dim]
        buffer = torch.cat([buffer, buffer.new_zeros(shape)], dim)
    index = positions[:, None, :, None] if buffer.dim() == 4 else positions[..., None]
    return buffer.scatter(dim, index.expand_as(new), new.to(buffer.dtype))
