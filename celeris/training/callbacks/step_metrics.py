"""The loss of every step, logged without waiting for the device at every step."""

from typing import Any

import lightning as L
import torch
import torch.distributed as dist

from celeris.training.module import StepRecord
from celeris.training.reporting import report_values


class StepMetrics(L.Callback):
    """Collects each step's record on the device and sends them in blocks.

    A block goes out every `every_n_steps` steps, before a checkpoint is written, at the end, and after an error: what
    a checkpoint contains has its metrics on disk, and what it does not contain is done again. Numbers are means over
    the ranks, except after an error, when nobody can wait for the others.

    Args:
        every_n_steps: steps per block (one device read each, and on several ranks two small collectives).
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
        self.flush(trainer, together=False)

    def flush(self, trainer: L.Trainer, together: bool = True) -> None:
        """Send what waits; all ranks must call it, unless not `together`: then the first rank's own numbers count."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        rows = _on_host(waiting)
        if together and trainer.world_size > 1:
            rows = _mean_over_ranks(rows, trainer.strategy.root_device)
        if trainer.is_global_zero:
            for record, values in zip(waiting, rows, strict=True):
                report_values(trainer, values, record.step)


def _on_host(records: list[StepRecord]) -> list[dict[str, float]]:
    """Their values, read from the device at once."""
    tensors = [value for record in records for value in record.values.values() if isinstance(value, torch.Tensor)]
    read = iter(torch.stack([t.float().flatten()[0] for t in tensors]).tolist() if tensors else [])
    return [
        {name: next(read) if isinstance(value, torch.Tensor) else float(value) for name, value in record.values.items()}
        for record in records
    ]


def _mean_over_ranks(rows: list[dict[str, float]], device: torch.device) -> list[dict[str, float]]:
    """Each value's mean over the ranks that have it: where an objective is exchanged, not all have the same terms."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, list(dict.fromkeys(name for row in rows for name in row)))
    names = list(dict.fromkeys(name for part in found for name in part))
    own = [[[row.get(name, 0.0), float(name in row)] for name in names] for row in rows]
    table = torch.tensor(own, dtype=torch.float64, device=device)
    dist.all_reduce(table)
    return [
        {name: total / count for name, (total, count) in zip(names, row, strict=True) if count}
        for row in table.tolist()
    ]
