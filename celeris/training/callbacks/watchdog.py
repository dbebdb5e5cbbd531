"""When nothing moves any more: say which rank hangs where, and end, so that a scheduler can start again."""

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lightning as L

from celeris.errors import CelerisError
from celeris.training import export
from celeris.training.callbacks import checkpoints, periodic

EXIT_STATUS = 75
"""sysexits' EX_TEMPFAIL: nothing is wrong with the command, start it again."""
PATIENT = frozenset(str(Path(str(module.__file__))) for module in (checkpoints, export, periodic))
"""Files whose work may take any time: checkpoints, exports, and what looks at the model between steps."""


class Watchdog(L.Callback):
    """Ends this process with exit status 75 when it has finished no training or held-out batch for `minutes`.

    Before, it prints to standard error the rank, the host, the step, what the rank was doing, and the Python stack of
    every thread. A rank that waits for another one fires, too, and its stack ends in the communication; the one they
    all wait for is the one whose stack does not. Each waits `grace_seconds` after its message, so that the end of the
    first does not silence the others.

    Every held-out batch counts, so a validation may be long. While the main thread is inside a checkpoint, an export
    or a periodic look at the model (`PATIENT`, seen in its stack) the clock stands still. Work of that kind on the
    first rank alone (samples, pictures) keeps the others waiting in the next step: `minutes` must exceed it, and the
    first batch, which may compile.

    Args:
        minutes: longest time between two batches.
        grace_seconds: time between the message and the end.
    """

    def __init__(self, minutes: float, grace_seconds: float = 10.0) -> None:
        if minutes <= 0:
            raise CelerisError(f"Watchdog(minutes={minutes}) must be positive; callbacks.watchdog=null leaves it out.")
        self.seconds, self.grace_seconds = 60 * minutes, grace_seconds
        self._last, self._place = time.monotonic(), "before the first batch"
        self._done = threading.Event()

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._beat("before the first batch")
        self._done.clear()
        main = threading.get_ident()
        threading.Thread(target=self._watch, args=(trainer, main), name="watchdog", daemon=True).start()

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._beat(f"in training batch {batch_idx}")

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._beat(f"after training batch {batch_idx}")

    def on_validation_batch_start(
        self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        self._beat(f"in held-out batch {batch_idx}")

    def on_validation_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self._beat("after a held-out batch")

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        self._done.set()

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        self._done.set()

    def _beat(self, place: str) -> None:
        self._last, self._place = time.monotonic(), place

    def _watch(self, trainer: L.Trainer, main: int) -> None:
        while not self._done.wait(min(self.seconds / 10, 15)):
            if self._hangs(main):
                self._report(trainer)
                if not self._done.wait(self.grace_seconds):
                    if (launcher := trainer.strategy.launcher) is not None:
                        launcher.kill(signal.SIGKILL)  # ranks that this one started, and nobody else would end
                    os._exit(EXIT_STATUS)  # the main thread may never come back to Python, where it could raise

    def _hangs(self, main: int) -> bool:
        """Whether the last sign of life of thread `main` is too old; known long work is one."""
        if _is_patient(main):
            self._last = time.monotonic()
        return time.monotonic() - self._last > self.seconds

    def _report(self, trainer: L.Trainer) -> None:
        print(
            f"watchdog: rank {trainer.global_rank} of {trainer.world_size} on {socket.gethostname()} (process "
            f"{os.getpid()}) has finished no batch for {self.seconds:,.0f} s, {self._place}, after step "
            f"{trainer.global_step}; it ends with exit status {EXIT_STATUS}. Stacks, the innermost call first:",
            file=sys.stderr,
            flush=True,
        )
        faulthandler.dump_traceback(file=2, all_threads=True)  # the descriptor, whatever sys.stderr is now


def _is_patient(thread: int) -> bool:
    """Whether the thread is inside a file of `PATIENT`."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_filename in PATIENT:
            return True
        frame = frame.f_back
    return False
