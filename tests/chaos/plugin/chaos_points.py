"""Callbacks for runs of train.py: what was seen, and a place where a run stands still until it is killed.

Loaded with plugins=[tests/chaos/plugin]; nothing of it is in the package.
"""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import lightning as L


class Seen(L.Callback):
    """One line for each micro-batch: {"step", "rank", "start" (when its launcher began), "ids", "rows"}."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / f"seen-{trainer.global_rank}.jsonl"
        self.began = float(os.environ["CHAOS_START"])

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        rows = [hashlib.sha256(str(row).encode()).hexdigest()[:16] for row in batch.context.tolist()]
        line = {"step": trainer.global_step, "rank": trainer.global_rank, "start": self.began}
        with self.file.open("a") as out:
            out.write(json.dumps({**line, "ids": batch.index.tolist(), "rows": rows}) + "\n")


class NotANumber(L.Callback):
    """Makes the loss of one step not finite, on one rank only."""

    def __init__(self, rank: int, step: int) -> None:
        self.rank, self.step = rank, step

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        inner = pl_module.objective.forward

        def forward(model: Any, batch: Any, seed: int) -> Any:
            output = inner(model, batch, seed)
            here = model.training and trainer.global_rank == self.rank and trainer.global_step == self.step
            return type(output)(output.loss * float("nan"), output.terms) if here else output

        pl_module.objective.forward = forward


class StandStill(L.Callback):
    """At the first visit of `place` at step `step` or later, says so in a file and does not move any more.

    The one who waits for the file then does to the process what it wants. Places: train (within a step), update
    (between two steps), validation, save (before a checkpoint is written), written (half of the bytes are in the
    file beside its place), renamed (the file is in place, last.ckpt still the old one), last (last.ckpt is the new
    one), export.

    Args:
        rank: that stands still; the others wait for it.
        folder: where the file `here` appears.
        seconds: go on after this time.
        whole: the file of `written` is left as it is; else half of it is cut off.
    """

    def __init__(
        self, place: str, step: int, rank: int, folder: str, seconds: float = 600.0, whole: bool = False
    ) -> None:
        self.whole = whole
        self.place, self.step, self.rank, self.folder, self.seconds = place, step, rank, Path(folder), seconds
        self.trainer: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.trainer = trainer
        replace = os.replace

        def watched(source: Any, target: Any) -> None:
            name = Path(target).name
            if name.startswith("step_"):
                half = os.path.getsize(source) // 2
                self.visit("written", None if self.whole else lambda: os.truncate(source, half))
            replace(source, target)
            if name.startswith("step_"):
                self.visit("renamed")
            if name == "last.ckpt":
                self.visit("last")

        os.replace = watched

    def visit(self, place: str, before: Any = None) -> None:
        if place != self.place or self.trainer.global_rank != self.rank or self.trainer.global_step < self.step:
            return
        self.place = ""
        if before is not None:
            before()
        part = self.folder / ".here"
        part.write_text(json.dumps({"step": self.trainer.global_step, "pid": os.getpid()}))
        part.rename(self.folder / "here")
        time.sleep(self.seconds)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.visit("train")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if pl_module.between_steps:
            self.visit("update")

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, _: int = 0) -> None:
        self.visit("validation")

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        self.visit("save")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.visit("export")
