"""One batch as the model sees it: a clean context stream and the canvas blocks to denoise."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
        index: (B,) int64, global sample counter (epoch · rows + position), the key of a row's random streams; it stays
            on the CPU, where those streams are seeded.
        infill, ragged: False says that no position is given, that none is PAD; known on the host, so that no step has
            to ask the device.
        asked: (B,) int64, context tokens that are only read: the prompt of a pair, whose own next-token loss is not
            counted. None: every token is counted.
        largest: (N, C) of the largest canvas that rows of this length can have; None: of this one, they all have it.
        step: all micro-batches that this rank reads in the optimizer step which this one begins, itself included.
        means: what the step's means are taken over (`over`); None: this batch is the whole step.
    """

    context: Tensor
    canvas: Tensor
    start: Tensor
    given: Tensor
    index: Tensor
    infill: bool = True
    ragged: bool = True
    asked: Tensor | None = None
    largest: tuple[int, int] | None = None
    step: "tuple[Batch, ...] | None" = None
    means: Mapping[str, Tensor] | None = None

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        moved = {name: getattr(self, name).to(device, non_blocking=non_blocking) for name in self._on_device}
        return replace(self, **moved)

    def rows(self, keep: Tensor) -> "Batch":
        """The rows that `keep` (B,) picks: bool or indices, on the CPU."""
        chosen = {
            name: getattr(self, name)[keep.to(getattr(self, name).device)] for name in (*self._on_device, "index")
        }
        return replace(self, **chosen)

    def pin_memory(self) -> "Batch":
        return replace(self, **{name: getattr(self, name).pin_memory() for name in self._on_device})

    def over(self, name: str, own: Tensor) -> Tensor:
        """What a sum over this batch is divided by, so that micro-batches together give the mean over their step.

        Args:
            name: of the objective's `counts`.
            own: the count in this batch alone.

        Returns:
            `own`; in a part of a step the count of all parts, divided by their number. At least 1e-12.
        """
        return (own if self.means is None else self.means[name].to(own.dtype)).clamp_min(1e-12)

    @property
    def _on_device(self) -> tuple[str, ...]:
        return ("context", "canvas", "start", "given", *(() if self.asked is None else ("asked",)))
