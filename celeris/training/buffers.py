"""Buffers that training moves: how they stood after the last complete step."""

import torch
from torch import Tensor, nn


class SettledBuffers:
    """A copy of a module's saved buffers, taken between two optimizer steps.

    A schedule's online fit moves with every micro-batch, also with those of a step that is later refused or never
    finished. The copy is what such a step is undone with, and what a checkpoint holds.

    Args:
        root: its persistent buffers are watched.
    """

    def __init__(self, root: nn.Module) -> None:
        saved = root.state_dict().keys()
        self._places = []
        for prefix, module in root.named_modules():
            for key, _ in module.named_buffers(recurse=False):
                name = f"{prefix}.{key}" if prefix else key
                if name in saved:
                    self._places.append((name, module, key))
        self.values: dict[str, Tensor] = {}
        self.settle()

    def _now(self) -> dict[str, Tensor]:
        return {name: getattr(module, key) for name, module, key in self._places}

    @torch.no_grad()
    def settle(self) -> None:
        """Take the copy."""
        self.values = {name: buffer.detach().clone() for name, buffer in self._now().items()}

    @torch.no_grad()
    def undo(self) -> None:
        """Put the copy back."""
        for name, buffer in self._now().items():
            buffer.copy_(self.values[name])

    @torch.no_grad()
    def heal(self) -> None:
        """Put the copy back where a number is not finite, so that the next micro-batch can be computed at all."""
        for name, buffer in self._now().items():
            if buffer.is_floating_point():
                buffer.copy_(torch.where(torch.isfinite(buffer), buffer, self.values[name]))
