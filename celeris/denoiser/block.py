"""One transformer block, with a method for each of the two streams of a row."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from celeris.denoiser.attention import Backend, Canvas, Causal
from celeris.denoiser.context import LayerContext, write
from celeris.denoiser.mixing import LocalMixing
from celeris.denoiser.rotary import Rotary, rotate


class Block(nn.Module):
    """Pre-norm attention and SwiGLU with adaLN-zero (DiT, 2212.09748), QK-norm and an optional local convolution.

    Args:
        width: H.
        heads: attention heads.
        hidden: width of the SwiGLU.
        cond_dim: width of the conditioning vector.
        mixing: (left, right) reach of the depthwise convolution before attention, or None.
        dropout: after attention and MLP.
    """

    passes = ("context", "canvas")

    def __init__(
        self, width: int, heads: int, hidden: int, cond_dim: int, mixing: tuple[int, int] | None, dropout: float
    ) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.modulation = nn.Linear(cond_dim, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)
        self.q_scale = nn.Parameter(torch.ones(width // heads))
        self.k_scale = nn.Parameter(torch.ones(width // heads))
        self.mixing = LocalMixing(width, *mixing) if mixing else None

    def context(
        self,
        x: Tensor,
        cond: Tensor,
        angles: Rotary,
        visible: Causal,
        past: LayerContext | None,
        attend: Backend,
    ) -> tuple[Tensor, LayerContext]:
        """Clean stream x (B, T, H) over itself and `past`; returns it and the layer's context, x's positions added."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(cond).chunk(6, -1)
        y = _modulate(x, shift1, scale1)
        positions = None if past is None else visible.positions
        taps = None
        if self.mixing is not None:
            taps = y if past is None else write(past.taps, y, visible.positions, visible.keys, 1)  # type: ignore[arg-type]
            y = self.mixing.context(y, taps, positions)
        q, k, v = self._heads(y, angles)
        if past is not None:
            k = write(past.keys, k, visible.positions, visible.keys, 2)
            v = write(past.values, v, visible.positions, visible.keys, 2)
        x = x + gate1 * self._merge(attend(q, k, v, visible))
        return x + gate2 * self._mlp(_modulate(x, shift2, scale2)), LayerContext(k, v, taps)

    def canvas(
        self, x: Tensor, cond: Tensor, angles: Rotary, visible: Canvas, past: LayerContext, attend: Backend
    ) -> Tensor:
        """Canvas stream x (B, N·C, H) over the context and its own blocks; `cond` (B, N·C, cond_dim) or broadcasts."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(cond).chunk(6, -1)
        y = _modulate(x, shift1, scale1)
        if self.mixing is not None and past.taps is not None:
            blocks = y.unflatten(1, (-1, visible.length))
            if visible.valid is not None:
                blocks = blocks * visible.valid[..., None]
            y = self.mixing.canvas(blocks, past.taps, visible.start).flatten(1, 2)
        q, k, v = self._heads(y, angles)
        k, v = torch.cat([past.keys.to(k), k], 2), torch.cat([past.values.to(v), v], 2)
        x = x + gate1 * self._merge(attend(q, k, v, visible))
        return x + gate2 * self._mlp(_modulate(x, shift2, scale2))

    def _heads(self, y: Tensor, angles: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = rearrange(self.qkv(y), "b t (three h d) -> three b h t d", three=3, h=self.heads)
        q = F.rms_norm(q, q.shape[-1:], self.q_scale.to(q.dtype))
        k = F.rms_norm(k, k.shape[-1:], self.k_scale.to(k.dtype))
        return rotate(q, angles), rotate(k, angles), v

    def _merge(self, heads: Tensor) -> Tensor:
        return F.dropout(self.out(rearrange(heads, "b h t d -> b t (h d)")), self.dropout, self.training)

    def _mlp(self, y: Tensor) -> Tensor:
        gate, value = self.up(y).chunk(2, -1)
        return F.dropout(self.down(F.silu(gate) * value), self.dropout, self.training)


def _modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift
