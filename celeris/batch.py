"""One batch as the model sees it: a clean context stream and the canvas blocks to denoise."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass
class Batch:
    """Rows laid out as `[context | canvas]` (S, N, C: see `celeris.typing`).

    Attributes:
        context: (B, S) int64, clean tokens, right-padded with the PAD id; S may be 0.
        canvas: (B, N, C) int64, tokens to denoise, padded with the PAD id. Block n of a row sees `context[:start[n]]`
            and itself; its position k stands at `start[n] + k`.
        start: (B, N) int64.
        given: (B, N, C) bool, canvas positions that stay noise-free and earn no loss.
        index: (B,) int64, global sample counter (epoch · rows + position), the key of a row's random streams.
    """

    context: Tensor
    canvas: Tensor
    start: Tensor
    given: Tensor
    index: Tensor

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        return Batch(*(getattr(self, f.name).to(device, non_blocking=non_blocking) for f in fields(self)))

    def pin_memory(self) -> "Batch":
        return Batch(*(getattr(self, f.name).pin_memory() for f in fields(self)))
