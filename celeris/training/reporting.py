"""One way out for numbers, tables and pictures: to every logger of the trainer that can take them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import lightning as L


@runtime_checkable
class MediaLogger(Protocol):
    """A logger that also takes tables and pictures."""

    def log_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None: ...

    def log_image(self, name: str, file: Path, step: int) -> None: ...


def report_values(trainer: L.Trainer, values: dict[str, float], step: int | None = None) -> None:
    """Send scalars, under the step they belong to (now, when None)."""
    for logger in trainer.loggers:
        logger.log_metrics(values, trainer.global_step if step is None else step)


def report_table(trainer: L.Trainer, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Send a table of text."""
    for logger in trainer.loggers:
        if isinstance(logger, MediaLogger):
            logger.log_table(name, columns, rows, trainer.global_step)


def report_image(trainer: L.Trainer, name: str, file: Path) -> None:
    """Send a picture that is already a file of the run."""
    for logger in trainer.loggers:
        if isinstance(logger, MediaLogger):
            logger.log_image(name, file, trainer.global_step)
