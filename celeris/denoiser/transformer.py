"""The denoiser: a trunk that reads clean context once and a noisy canvas many times."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from celeris.denoiser.attention import Canvas, Causal, backend
from celeris.denoiser.block import Block
from celeris.denoiser.conditioning import LevelEmbedding
from celeris.denoiser.context import Context, LayerContext, grown, write
from celeris.denoiser.rotary import rotary
from celeris.denoiser.token_input import TableInput, TokenInput
from celeris.errors import CelerisError
from celeris.typing import Gamma, Ids, Mask


class Transformer(nn.Module):
    """Hidden states of the context (causal) and of the canvas (both ways inside a block, all context before it).

    Args:
        dim: D of the embeddings that come in.
        width: H.
        depth: blocks.
        heads: attention heads; H must be a multiple of 2·heads.
        cond_dim: width of the noise-level conditioning.
        features: how many D-wide features describe a canvas position beside its best guess (`canvas`); 0: none.
        mlp_ratio: SwiGLU width is 2/3 of mlp_ratio·H, so that its parameters equal a plain MLP's.
        mixing: (left, right) reach of the local convolution, or None for none.
        dropout: in every block.
        left_neighbour: a canvas position is also predicted by the state on its left (`canvas`).
        token_in: how tokens enter; a `TableInput` when None.
        attention: auto, flash, sdpa or reference.
    """

    def __init__(
        self,
        dim: int,
        width: int,
        depth: int,
        heads: int,
        cond_dim: int = 64,
        features: int = 2,
        mlp_ratio: float = 4.0,
        mixing: Sequence[int] | None = None,
        dropout: float = 0.0,
        attention: str = "auto",
        left_neighbour: bool = True,
        token_in: TableInput | TokenInput | None = None,
    ) -> None:
        super().__init__()
        if width % (2 * heads):
            raise CelerisError(f"width {width} must be a multiple of 2·heads = {2 * heads}; change width or heads.")
        self.width, self.head_dim, self.left_neighbour = width, width // heads, left_neighbour
        self.attend = backend(attention)
        hidden = 16 * round(mlp_ratio * width * 2 / 3 / 16)
        reach = (int(mixing[0]), int(mixing[1])) if mixing is not None else None
        self.blocks = nn.ModuleList(Block(width, heads, hidden, cond_dim, reach, dropout) for _ in range(depth))
        self.levels = LevelEmbedding(cond_dim)
        self.token_in = token_in or TableInput(dim, width)
        self.canvas_in = nn.Linear(features * dim, width, bias=False) if features else None
        self.own = nn.Linear(width, width, bias=False)
        self.given = nn.Parameter(torch.zeros(width))
        self.final = nn.Linear(cond_dim, 2 * width)
        nn.init.zeros_(self.final.weight)
        nn.init.zeros_(self.final.bias)

    def context(self, x: Tensor, lengths: Ids, past: Context | None = None) -> Context:
        """Run clean tokens through the causal stream.

        Args:
            x: (B, T, H) new positions, out of `token_in`; row b's real ones are its first `lengths[b]`.
            lengths: (B,) real new positions per row.
            past: what each row already holds; the new positions follow its own length.

        Returns:
            The context with the new positions.
        """
        cond = F.silu(self.levels.clean)
        old = past if past is not None and past.size else None
        positions = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        if old is not None:
            positions = positions + old.lengths[:, None]
        visible = Causal(positions, grown(old.size, positions) if old else x.shape[1], fresh=old is None)
        angles = rotary(positions, self.head_dim)
        layers = []
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x, layer = block.context(x, cond, angles, visible, old.layers[number] if old else None, self.attend)
            layers.append(layer)
        hidden = self._final(x, cond)
        if old is None:
            return Context(lengths, layers, hidden)
        return Context(old.lengths + lengths, layers, write(old.hidden, hidden, positions, visible.keys, 1))

    def empty(self, rows: int, device: torch.device) -> Context:
        """A context of no tokens for `rows` rows: unconditional text."""
        weight = self.token_in.weight
        nothing = weight.new_zeros(rows, self.width // self.head_dim, 0, self.head_dim)
        layers = [
            LayerContext(nothing, nothing, weight.new_zeros(rows, 0, self.width) if block.mixing is not None else None)
            for block in self.blocks
        ]
        return Context(
            torch.zeros(rows, dtype=torch.long, device=device), layers, weight.new_zeros(rows, 0, self.width)
        )

    def canvas(
        self,
        guess: Tensor,
        x: Tensor | None,
        gamma: Gamma,
        given: Mask | None,
        valid: Mask | None,
        start: Ids,
        context: Context,
    ) -> Tensor:
        """Run canvas features through the trunk.

        A position is predicted by its own state and, as in any language model, by the state on its left (for the first
        position of a block: the last context state, which is the next-token prediction). So what the context stream
        knows about the next token is the canvas's to start from.

        Args:
            guess: (B, N, C, H) out of `token_in`, the mean over what each position may be as far as known; it enters
                like a context token, and is one when the position is decided.
            x: (B, N, C, features·D) everything else; None when features is 0.
            gamma: (B, N, C), or (B, N, 1) when a block has one level.
            given: (B, N, C) noise-free positions, or None.
            valid: (B, N, C) False on PAD, or None.
            start: (B, N) context positions each block sees; also where it stands.
            context: from `context`.

        Returns:
            Hidden states (B, N, C, H) for the rounding head.
        """
        rows, blocks, length = guess.shape[:3]
        cond = self.levels(gamma)
        h = guess if self.canvas_in is None else guess + self.canvas_in(x)
        if given is not None:
            cond = torch.where(given[..., None], self.levels.clean.to(cond.dtype), cond)
            h = h + given[..., None] * self.given
        h = h.flatten(1, 2)
        # One level for everything stays (B, 1, cond): the modulations are then computed once, not per position.
        cond = F.silu(
            cond.expand(rows, blocks, length, -1).flatten(1, 2) if cond[0, :, :, 0].numel() > 1 else cond[:, 0]
        )
        positions = (start[..., None] + torch.arange(length, device=guess.device)).flatten(1)
        visible = Canvas(start, valid, context.size, length)
        angles = rotary(positions, self.head_dim)
        for block, layer in zip(self.blocks, context.layers, strict=True):
            assert isinstance(block, Block)
            h = block.canvas(h, cond, angles, visible, layer, self.attend)
        h = self._final(h, cond).unflatten(1, (blocks, length))
        if not self.left_neighbour:
            return self.own(h)
        before = F.pad(context.hidden, (0, 0, 1, 0)).gather(1, start[..., None].expand(-1, -1, self.width))
        return torch.cat([before[:, :, None].to(h), h[:, :, :-1]], 2) + self.own(h)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """torch.compile of both streams in place; parameter names do not change."""
        for stream in ("context", "canvas"):
            setattr(self, stream, torch.compile(getattr(self, stream), *args, **kwargs))

    def _final(self, x: Tensor, cond: Tensor) -> Tensor:
        shift, scale = self.final(cond).chunk(2, -1)
        return F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift
