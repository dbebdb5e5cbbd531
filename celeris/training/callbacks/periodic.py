"""Things done every so often, between two steps, on the averaged weights."""

import time
from abc import abstractmethod
from typing import Any

import lightning as L
import torch

from celeris.errors import CelerisError
from celeris.training.assembled import assembled
from celeris.training.sharding import is_sharded


class Periodic(L.Callback):
    """Calls `look` every `every_n_steps` steps and/or `every_minutes` minutes, and once after the last step.

    `look` runs on the first rank only, so it must not communicate. The model is whole, in eval mode, with averaged
    weights and no gradients; the training state is untouched. Sharded weights are gathered for it into a copy.

    Args:
        every_n_steps: optimizer steps; None leaves it to the clock.
        every_minutes: minutes; None leaves it to the steps.
    """

    def __init__(self, every_n_steps: int | None = None, every_minutes: float | None = None) -> None:
        if (every_n_steps is None and every_minutes is None) or (every_n_steps is not None and every_n_steps < 1):
            raise CelerisError(
                f"{type(self).__name__}(every_n_steps={every_n_steps}, every_minutes={every_minutes}): give a positive "
                "number to one of them."
            )
        self.every_n_steps, self.every_minutes = every_n_steps, every_minutes
        self._last_time, self._last_step = time.monotonic(), 0

    @abstractmethod
    def look(self, trainer: L.Trainer, model: Any) -> None:
        """The work; results go to `celeris.training.reporting`."""

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._last_time, self._last_step = time.monotonic(), trainer.global_step

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not pl_module.between_steps:
            return
        due = self._due(trainer.global_step)
        if self.every_minutes is not None and is_sharded(pl_module):  # clocks differ, and gathering takes all ranks
            due = trainer.strategy.reduce_boolean_decision(due, all=False)
        if due:
            self._look(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.global_step != self._last_step:
            self._look(trainer, pl_module)

    def _due(self, step: int) -> bool:
        by_step = self.every_n_steps is not None and step % self.every_n_steps == 0
        by_time = self.every_minutes is not None and time.monotonic() - self._last_time >= 60 * self.every_minutes
        return by_step or by_time

    def _look(self, trainer: L.Trainer, module: Any) -> None:
        if trainer.is_global_zero or is_sharded(module):
            training = module.model.training
            module.model.eval()
            try:
                with torch.no_grad(), module.averaged():
                    model = assembled(module.model)
                    if model is not None:
                        self.look(trainer, model)
            finally:
                module.model.train(training)
        self._last_time, self._last_step = time.monotonic(), trainer.global_step
