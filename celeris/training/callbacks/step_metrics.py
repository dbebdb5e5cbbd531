"""The loss of every step, logged without waiting for the device at every step."""

from typing import Any

import lightning as L
import torch

from celeris.training.module import StepRecord
from celeris.training.reporting import report_values


class StepMetrics(L.Callback):
    """Collects each step's record on the device and sends them in blocks.

    A block goes out every `every_n_steps` steps, before a checkpoint is written, at the end, and after an error: what
    a checkpoint contains has its metrics on disk, and what it does not contain is done again.

    Args:
        every_n_steps: steps per block (one device read each).
    """

    def __init__(self, every_n_steps: int = 10) -> None:
        self.every_n_steps = every_n_steps
        self._waiting: list[StepRecord] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if pl_module.between_steps:
            self._waiting.append(pl_module.record)
            if len(self._waiting) >= self.every_n_steps:
                self.flush(trainer)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self.flush(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.flush(trainer)

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        self.flush(trainer)

    def flush(self, trainer: L.Trainer) -> None:
        """Send what waits. Numbers are those of the first rank; all ranks train on the same mean gradient."""
        waiting, self._waiting = self._waiting, []
        if not waiting or not trainer.is_global_zero:
            return
        tensors = [value for record in waiting for value in record.values.values() if isinstance(value, torch.Tensor)]
        read = iter(torch.stack([t.float().flatten()[0] for t in tensors]).tolist() if tensors else [])
        for record in waiting:
            values = {k: next(read) if isinstance(v, torch.Tensor) else float(v) for k, v in record.values.items()}
            report_values(trainer, values, record.step)
