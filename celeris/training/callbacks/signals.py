"""Preemption: finish the step, checkpoint, leave."""

import signal
import threading
from types import FrameType
from typing import Any

import lightning as L
import torch

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2") if hasattr(signal, name))


class StopOnSignal(L.Callback):
    """SIGINT, SIGTERM, SIGUSR1 or SIGUSR2 to any rank ends the run after the step in progress, on all ranks.

    The handler only sets a flag. After the step the ranks agree, `Checkpoints` saves (list it after this callback) and
    training ends as if complete; `received` then tells the caller why. A second SIGINT interrupts at once.

    Attributes:
        received: number of the signal, or None; the same on all ranks once they have agreed (the highest wins).
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not pl_module.between_steps:
            return
        if trainer.world_size > 1:
            number = torch.tensor(self.received or 0, device=trainer.strategy.root_device)
            self.received = int(trainer.strategy.reduce(number, reduce_op="max")) or None
        trainer.should_stop = trainer.should_stop or self.received is not None

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        self._restore()

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number

    def _restore(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:  # else Lightning has put the handlers of before the run back
                signal.signal(number, handler)
        self._before = {}
