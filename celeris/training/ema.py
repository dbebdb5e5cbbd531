"""Exponential moving average of the weights, in float32, beside the raw ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from celeris.errors import CelerisError
from celeris.training.sharding import local


class EMA:
    """average ← d·average + (1 − d)·weights with d = min(decay, (1 + n)/(10 + n)) at update n.

    Only parameters are averaged; buffers (the schedule's online fit, counters) always are the model's own. The
    average is float32 whatever the weights are: at decay 0.9999 an update is smaller than a bf16 step, and a bf16
    average would never move. Where the weights are sharded, the average is in the same shards.

    Args:
        decay: final decay.
        start_step: first training step that is averaged. Before it the average does not exist and the model's own
            weights stand in for it.
    """

    def __init__(self, decay: float, start_step: int = 0) -> None:
        if not 0 <= decay < 1:
            raise CelerisError(f"The EMA decay is {decay}; it must lie in [0, 1), for example 0.999.")
        self.decay, self.start_step = decay, start_step
        self.num_updates = 0
        self.average: dict[str, Tensor] | None = None

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after training step number `step` (0-based)."""
        if step < self.start_step:
            return
        current = dict(model.named_parameters())
        if self.average is None:
            self.average = {name: p.detach().float().clone() for name, p in current.items()}
        else:
            decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
            average = self._on_device_of(current)
            weights = [local(current[name].detach()).float() for name in average]
            torch._foreach_lerp_([local(value) for value in average.values()], weights, 1 - decay)
        self.num_updates += 1

    @contextmanager
    def swapped(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model computes with the average; afterwards, also after an error, with its own weights.

        Values are copied in place, so compiled graphs and optimizer references stay valid. Before the first update
        this changes nothing.
        """
        if self.average is None:
            yield
            return
        current = dict(model.named_parameters())
        average = self._on_device_of(current)
        own = {name: local(current[name].detach()).clone() for name in average}
        try:
            _copy(current, average)
            yield
        finally:
            _copy(current, own)

    def _on_device_of(self, current: dict[str, nn.Parameter]) -> dict[str, Tensor]:
        assert self.average is not None
        if self.average.keys() != current.keys():
            odd = sorted(self.average.keys() ^ current.keys())[0]
            raise CelerisError(f"The EMA and the model do not have the same parameters (first difference: {odd!r}).")
        for name, p in current.items():
            if self.average[name].device != p.device:
                self.average[name] = self.average[name].to(p.device)
        return self.average

    def state_dict(self) -> dict[str, Any]:
        """Plain containers and tensors."""
        return {"num_updates": self.num_updates, "average": self.average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_updates = state["num_updates"]
        average = state["average"]
        self.average = None if average is None else {name: value.clone() for name, value in average.items()}


@torch.no_grad()
def _copy(target: dict[str, nn.Parameter], source: dict[str, Tensor]) -> None:
    torch._foreach_copy_([local(target[name]) for name in source], [local(value) for value in source.values()])
