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

    The handler only notes the number. After the step the ranks agree, `Checkpoints` saves (list it after this callback)
    and training ends as if complete; `received` then tells the caller why. A second SIGINT interrupts at once.

    Attributes:
        received: number of the signal the ranks have agreed to stop for, the same on all (the highest wins), or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._noted = 0  # of this rank; a signal may come while the ranks agree, and counts after the next step then
        self._before: dict[int, Any] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not pl_module.between_steps:
            return
        number = self._noted
        if trainer.world_size > 1:
            own = torch.tensor(number, device=trainer.strategy.root_device)
            number = int(trainer.strategy.reduce(own, reduce_op="max"))
        if number:
            self.received, trainer.should_stop = number, True

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        self._restore()

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._noted and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._noted = number

    def _restore(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._note:  # else Lightning has put the handlers of before the run back
                signal.signal(number, handler)
        self._before = {}
