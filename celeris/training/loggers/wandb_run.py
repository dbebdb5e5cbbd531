"""Weights & Biases as a guest: it may fail, training may not."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only
from rich import get_console
from rich.markup import escape


class WandbRun(Logger):
    """Sends numbers, tables and pictures to one W&B run, from the first rank only.

    wandb is imported at the first value. Where an online start fails (no network, no key) one line says so and the
    run is kept offline. Any other error of W&B, then or later, prints one line and ends the logging of this process,
    nothing else; metrics.jsonl has everything anyway. Every wait is bounded. Every value carries `trainer/global_step`,
    which is the x-axis, so a resumed run continues its curves, under the same id, which lies in the run's folder.

    Args:
        folder: the run's folder; W&B files go there.
        project: W&B project.
        offline: write files for `wandb sync`, use no network.
        start_seconds: longest wait for an online start.
        finish_seconds: longest wait at the end for what is not uploaded yet; `wandb sync` sends the rest.
    """

    def __init__(
        self,
        folder: str | Path,
        project: str = "celeris",
        offline: bool = True,
        start_seconds: float = 20.0,
        finish_seconds: float = 60.0,
    ) -> None:
        super().__init__()
        self.folder, self.project, self.offline = Path(folder), project, offline
        self.start_seconds, self.finish_seconds = start_seconds, finish_seconds
        self._run: Any = None
        self._failed = False

    @property
    def name(self) -> str:
        return self.project

    @property
    def version(self) -> str:
        return self.folder.name

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._try(lambda run: run.log({**metrics, "trainer/global_step": step}))

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self._try(lambda run: run.config.update(dict(params), allow_val_change=True))

    @rank_zero_only
    def log_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        def send(run: Any) -> None:
            import wandb

            table = wandb.Table(columns=["step", *columns], data=[[step, *row] for row in rows])
            run.log({name: table, "trainer/global_step": step})

        self._try(send)

    @rank_zero_only
    def log_image(self, name: str, file: Path, step: int) -> None:
        def send(run: Any) -> None:
            import wandb

            run.log({name: wandb.Image(str(file)), "trainer/global_step": step})

        self._try(send)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._run is not None:
            self._try(lambda run: run.finish(exit_code=0 if status == "success" else 1))
            self._run = None

    def _try(self, send: Callable[[Any], None]) -> None:
        if self._failed:
            return
        try:
            if self._run is None:
                self._run = self._start()
            send(self._run)
        except Exception as error:  # whatever it is, it is not worth the run
            self._failed = True
            self._warn("W&B stopped", error, "training goes on, metrics.jsonl has every number.")
            _end_service()

    def _start(self) -> Any:
        if not self.offline:
            try:
                return self._init(offline=False)
            except Exception as error:
                self._warn("W&B cannot be reached", error, "the run is kept offline; `wandb sync` sends it later.")
                _end_service()  # it still holds the id
        return self._init(offline=True)

    def _init(self, offline: bool) -> Any:
        import wandb

        self.folder.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=self.project,
            dir=str(self.folder),
            group=self.folder.name,
            name=self.folder.name,
            id=self._run_id(),
            mode="offline" if offline else "online",
            resume="allow",
            settings=wandb.Settings(
                silent=True,
                init_timeout=self.start_seconds,
                login_timeout=self.start_seconds,
                finish_timeout=self.finish_seconds,
            ),
        )
        run.define_metric("*", step_metric="trainer/global_step")
        return run

    def _run_id(self) -> str:
        file = self.folder / "wandb_id.txt"
        if not file.exists():
            file.write_text(secrets.token_hex(4))
        return file.read_text().strip()

    def _warn(self, what: str, error: Exception, then: str) -> None:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        get_console().print(f"[yellow]warning:[/yellow] {what} ({escape(reason[:200])}); {then}")


def _end_service() -> None:
    """W&B's process ends; else its exit hook, with nothing left to talk to, prints a traceback."""
    with suppress(Exception):
        import wandb

        wandb.teardown(exit_code=1)
