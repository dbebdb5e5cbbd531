"""Checkpoints that are whole or absent: written beside their place, then renamed into it."""

import os
import shutil
from pathlib import Path
from typing import Any

import lightning as L

from celeris.errors import CelerisError


class Checkpoints(L.Callback):
    """Writes step_00001000.ckpt every `every_n_steps` steps and at the end, and keeps last.ckpt the newest.

    Each is a file, or a folder where the strategy shards the weights (`celeris.training.checkpoint_folder`), of plain
    containers and tensors only (torch.load(weights_only=True)). A kill at any moment, also during the write, leaves
    those before it as they were.

    Args:
        folder: the run's checkpoints; created when missing.
        every_n_steps: optimizer steps between two files.
        keep: newest files to keep, last.ckpt not counted.

    Raises:
        CelerisError: the folder cannot be written to (at the first save).
    """

    def __init__(self, folder: str | Path, every_n_steps: int, keep: int = 2) -> None:
        if every_n_steps < 1 or keep < 1:
            raise CelerisError(f"Checkpoints(every_n_steps={every_n_steps}, keep={keep}): both must be at least 1.")
        self.folder, self.every_n_steps, self.keep = Path(folder), every_n_steps, keep
        self._saved = -1

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._saved = trainer.global_step  # a resumed run has this one already, a fresh one has nothing to keep

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if pl_module.between_steps and (trainer.global_step % self.every_n_steps == 0 or trainer.should_stop):
            self.save(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        """Write the state after the last complete step, unless it is written already. All ranks must call it."""
        step = trainer.global_step
        if step == self._saved:
            return
        target = self.folder / f"step_{step:08d}.ckpt"
        part = self.folder / f".{target.name}.part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if trainer.is_global_zero:
                self._clear_leftovers()
            trainer.strategy.barrier("leftovers")  # of a killed run, before any rank writes
            trainer.save_checkpoint(part)
            if trainer.is_global_zero:
                if target.is_dir():
                    self._point_last_at(part)  # a whole one while the other is exchanged
                _into_place(part, target)
                self._point_last_at(target)
                self._forget_old()
        except OSError as error:
            raise CelerisError(
                f"The checkpoint of step {step} cannot be written to {self.folder} ({error.strerror or error}); "
                "free space there or choose another folder with paths.runs_dir=."
            ) from error
        trainer.strategy.barrier("checkpoint")
        self._saved = step

    def _point_last_at(self, target: Path) -> None:
        """last.ckpt is another name of the newest, so it costs no space: a second name of a file (a copy where links
        are not possible), a symbolic link to a folder."""
        part = self.folder / ".last.ckpt.part"
        part.unlink(missing_ok=True)
        if target.is_dir():
            os.symlink(target.name, part)
            os.replace(part, self.folder / "last.ckpt")
            return
        try:
            os.link(target, part)
        except OSError:
            shutil.copyfile(target, part)
        _into_place(part, self.folder / "last.ckpt")
        part.unlink(missing_ok=True)  # renaming over another name of the same file leaves both

    def _forget_old(self) -> None:
        for old in sorted(self.folder.glob("step_*.ckpt"))[: -self.keep]:
            _delete(old)

    def _clear_leftovers(self) -> None:
        kept = (self.folder / "last.ckpt").resolve()
        for pattern in (".*.ckpt.part", ".*.ckpt.old"):
            for leftover in self.folder.glob(pattern):
                if leftover.resolve() != kept:
                    _delete(leftover)


def _into_place(part: Path, target: Path) -> None:
    """Rename after the bytes have reached the disk, so that a power cut cannot leave a name without contents."""
    if part.is_file():  # the files of a folder were synchronised by who wrote them
        with part.open("rb") as file:
            os.fsync(file.fileno())
    # Only a file can be renamed over a file, and nothing over a folder that holds something.
    if target.is_dir() and not target.is_symlink() or part.is_dir() and target.exists():
        _delete(target)
    os.replace(part, target)


def _delete(path: Path) -> None:
    """A folder loses its name before its files: under step_….ckpt there is never half of one."""
    if path.is_dir() and not path.is_symlink():
        old = path if path.suffix == ".old" else path.with_name(f".{path.name.removeprefix('.')}.old")
        if old != path:
            os.replace(path, old)
        shutil.rmtree(old)
    else:
        path.unlink()
