"""A progress bar over optimizer steps; plain lines where the output is not a terminal."""

import time
from typing import Any

import lightning as L
from rich import get_console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class ProgressBar(L.Callback):
    """Shows step, loss, tokens per second and remaining time.

    The loss is read from the device at most once per `refresh_seconds`.

    Args:
        refresh_seconds: between two updates of the bar.
        line_seconds: between two lines where there is no terminal.
    """

    def __init__(self, refresh_seconds: float = 1.0, line_seconds: float = 30.0) -> None:
        self.refresh_seconds, self.line_seconds = refresh_seconds, line_seconds
        self._bar: Progress | None = None
        self._shown = self._tokens = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._since, self._tokens, self._shown = time.monotonic(), 0.0, 0.0
        if not trainer.is_global_zero or not get_console().is_terminal:
            return
        self._bar = Progress(
            TextColumn("train"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("<"),
            TimeRemainingColumn(),
            console=get_console(),
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=trainer.max_steps, completed=trainer.global_step, status="")

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._tokens += batch.canvas.numel() * trainer.world_size
        if not pl_module.between_steps or not trainer.is_global_zero:
            return
        now = time.monotonic()
        wait = self.refresh_seconds if self._bar is not None else self.line_seconds
        if now - self._shown < wait and trainer.global_step < trainer.max_steps:
            return
        status = f"loss {float(pl_module.record.values['train/loss']):.3f}  {self._rate(now)} tokens/s"
        self._shown = now
        if self._bar is not None:
            self._bar.update(self._task, completed=trainer.global_step, status=status)
        else:
            print(f"step {trainer.global_step}/{trainer.max_steps}  {status}", flush=True)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._close()

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        self._close()

    def _rate(self, now: float) -> str:
        """Since the last update, so that the figure follows the present."""
        rate = self._tokens / max(now - self._since, 1e-9)
        self._since, self._tokens = now, 0.0
        return f"{rate:,.0f}"

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
