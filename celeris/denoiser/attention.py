"""Attention over `[context | canvas]`: one signature, four back-ends (`reference`, `sdpa`, `dense`, `flash`).

What a query may see is a `Visibility`: either causal (the context stream over itself) or, for canvas block n of a row,
the first `start[n]` context keys and the valid keys of its own block.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.errors import CelerisError


@dataclass(frozen=True)
class Causal:
    """Queries at absolute positions (B, Tq) see the keys at positions ≤ their own; keys stand at 0 … Tk−1.

    `fresh` says that the queries are the keys (nothing cached before them), so no mask needs to be written down.
    """

    positions: Tensor
    keys: int
    fresh: bool

    @cached_property
    def mask(self) -> Tensor:
        """(B or 1, 1, Tq, Tk) bool, True = visible."""
        positions = self.positions[:1] if self.fresh else self.positions  # fresh rows all count from 0
        return (torch.arange(self.keys, device=positions.device) <= positions[..., None])[:, None]

    @cached_property
    def bias(self) -> Tensor:
        """The mask as something to add to scores, float32."""
        return _bias(self.mask)


@dataclass(frozen=True)
class Canvas:
    """Block n of a row sees context keys j < start[n] and its own valid positions.

    Keys are laid out as [context (S) | canvas (N·C)], queries as the canvas (N·C).

    Attributes:
        start: (B, N) int64.
        valid: (B, N, C) bool, or None when every canvas position is real.
        context: S.
        length: C.
    """

    start: Tensor
    valid: Tensor | None
    context: int
    length: int

    @cached_property
    def mask(self) -> Tensor:
        """(B, 1, N·C, S + N·C) bool. A block with no valid key sees itself: a row of nothing would be NaN."""
        rows, blocks = self.start.shape
        device = self.start.device
        past = torch.arange(self.context, device=device) < self.start.repeat_interleave(self.length, 1)[..., None]
        number = torch.arange(blocks * self.length, device=device) // self.length
        own = (number[:, None] == number).expand(rows, -1, -1)
        if self.valid is not None:
            some = self.valid | ~self.valid.any(-1, keepdim=True)
            own = own & some.flatten(1)[:, None]
        return torch.cat([past, own], -1)[:, None]

    @cached_property
    def bias(self) -> Tensor:
        """The mask as something to add to scores, float32."""
        return _bias(self.mask)


def _bias(mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -1e30)


Visibility = Causal | Canvas
Backend = Callable[[Tensor, Tensor, Tensor, Visibility], Tensor]


def reference(q: Tensor, k: Tensor, v: Tensor, visible: Visibility) -> Tensor:
    """softmax(q·kᵀ/√d)·v in float32, as the formula reads. q (B, h, Tq, d), k and v (B, h, Tk, d) → (B, h, Tq, d)."""
    scores = q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores.masked_fill(~visible.mask, -math.inf).softmax(-1) @ v.float()).to(q.dtype)


def sdpa(q: Tensor, k: Tensor, v: Tensor, visible: Visibility) -> Tensor:
    """torch's fused attention; the causal case needs no mask."""
    if isinstance(visible, Causal) and visible.fresh:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible.mask)


def dense(q: Tensor, k: Tensor, v: Tensor, visible: Visibility) -> Tensor:
    """Two matrix products and a softmax in the tensors' own dtype: on a CPU in bf16, forward and backward together are
    clearly faster than the fused kernel (`python -m celeris.denoiser.benchmark`)."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2) + visible.bias.to(q.dtype)
    return scores.softmax(-1) @ v


def flash_varlen() -> Callable[..., Tensor] | None:
    """flash_attn_varlen_func of whichever flash-attn is installed (4, 3 or 2), or None."""
    for module in ("flash_attn.cute", "flash_attn_interface", "flash_attn"):
        try:
            return import_module(module).flash_attn_varlen_func
        except (ImportError, AttributeError, OSError):
            continue
    return None


def flash(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, varlen: Callable[..., Tensor] | None = None) -> Tensor:
    """FlashAttention's variable-length kernel: each canvas block is a sequence with the keys it may see, packed.

    Rows of the context stream are sequences of their own length; nothing that is masked is ever computed.

    Args:
        varlen: the kernel (packed q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=) → packed
            output; the installed flash-attn's unless given.

    Raises:
        CelerisError: flash-attn is not importable.
    """
    varlen = varlen or flash_varlen()
    if varlen is None:
        raise CelerisError(
            "Attention back-end 'flash' needs flash-attn, which is not importable; install "
            "requirements-gpu.txt or use attention 'sdpa'."
        )
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    rows = q.shape[0]
    if isinstance(visible, Causal):
        longest = visible.keys
        seen = (visible.positions[:, -1] + 1).clamp_max(longest)
        keep = torch.arange(longest, device=q.device) < seen[:, None]
        queries, lengths_k, keys, values = q.flatten(0, 1), seen, k[keep], v[keep]
        lengths_q, causal = torch.full_like(seen, q.shape[1]), True
    else:
        blocks, length = visible.start.shape[1], visible.length
        past = torch.arange(visible.context, device=q.device) < visible.start.flatten()[:, None]
        own = q.new_ones(rows * blocks, length, dtype=torch.bool)
        if visible.valid is not None:
            own = (visible.valid | ~visible.valid.any(-1, keepdim=True)).flatten(0, 1)
        keep = torch.cat([past, own], 1)

        def per_block(x: Tensor) -> Tensor:
            context, canvas = x.split([visible.context, blocks * length], dim=1)
            context = context[:, None].expand(-1, blocks, -1, -1, -1).flatten(0, 1)
            return torch.cat([context, canvas.unflatten(1, (blocks, length)).flatten(0, 1)], 1)[keep]

        queries, keys, values = q.flatten(0, 1), per_block(k), per_block(v)
        lengths_k, lengths_q = keep.sum(1), torch.full((rows * blocks,), length, device=q.device)
        longest, causal = keep.shape[1], False
    cumulative = [F.pad(n.cumsum(0), (1, 0)).to(torch.int32) for n in (lengths_q, lengths_k)]
    out = varlen(queries, keys, values, *cumulative, int(lengths_q.max()) if rows else 0, longest, causal=causal)
    out = out[0] if isinstance(out, tuple) else out
    return out.view(q.shape).transpose(1, 2)


def automatic(q: Tensor, k: Tensor, v: Tensor, visible: Visibility) -> Tensor:
    """flash when it is installed and the tensors fit it (CUDA, fp16/bf16), dense for bf16 on a CPU, else sdpa."""
    half = q.dtype in (torch.float16, torch.bfloat16)
    if q.is_cuda and half and flash_varlen() is not None:
        return flash(q, k, v, visible)
    if q.device.type == "cpu" and half:
        return dense(q, k, v, visible)
    return sdpa(q, k, v, visible)


BACKENDS: dict[str, Backend] = {"auto": automatic, "flash": flash, "sdpa": sdpa, "dense": dense, "reference": reference}


def backend(name: str) -> Backend:
    """The back-end called `name`; 'flash' without flash-attn fails here, not in the first step."""
    if name not in BACKENDS:
        raise CelerisError(f"Attention back-end {name!r} is unknown; choose one of {', '.join(BACKENDS)}.")
    if name == "flash" and flash_varlen() is None:
        raise CelerisError(
            "Attention back-end 'flash' needs flash-attn, which is not importable here; use attention=auto or sdpa."
        )
    return BACKENDS[name]
