"""Statistics learned while training: the same whatever micro-batches and ranks a step's rows came in."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn


class OnlineFit(nn.Module, ABC):
    """Buffers that move by sums over what was seen.

    By itself it learns from each call of `see` at once. Between `hold` and `settle` the sums add up, over micro-batches
    here and over ranks by the `reduce` of whoever trains, and it learns from them once: a step is one observation.
    """

    _held: Tensor | None = None  # no buffer: a step that is never finished leaves nothing in a checkpoint

    @abstractmethod
    def nothing(self) -> Tensor:
        """The sums over no observations, float64."""

    @abstractmethod
    def learn(self, sums: Tensor) -> None:
        """Move the buffers."""

    @torch.no_grad()
    def see(self, sums: Tensor) -> None:
        """Take in the sums over some observations, shaped like `nothing`."""
        if self._held is None:
            self.learn(sums)
        else:
            self._held = self._held + sums

    @torch.no_grad()
    def hold(self) -> None:
        """Begin a step, and forget one that was begun before."""
        self._held = self.nothing()

    @torch.no_grad()
    def settle(self, reduce: Callable[[Tensor], Tensor]) -> None:
        """End a step: learn from the sum of all ranks, which `reduce` makes of this rank's."""
        if self._held is not None:
            self.learn(reduce(self._held))
            self._held = None
