"""Where a training run lives: `runs/<experiment>/<run id>/`, the same folder on every rank and after a resume."""

import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from celeris.config.nearest import hint
from celeris.errors import CelerisError

RUN_ID = "CELERIS_RUN_ID"
"""Environment variable by which the ranks that this process starts learn the id."""


@dataclass(frozen=True)
class Run:
    """A run's folder and the checkpoint it continues from (None: from the start)."""

    folder: Path
    resume_from: Path | None = None

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def export(self) -> Path:
        return self.folder / "export"


def open_run(parent: Path, run_id: str | None, ckpt: str | None, job: int | None = None) -> Run:
    """Choose the folder of a run, without creating it.

    Args:
        parent: `runs/<experiment>`.
        run_id: an explicit name, or None: the cluster job's id, else time and chance.
        ckpt: None starts anew; "last" continues the run of this id, or the newest run when there is no id, and starts
            anew where there is no checkpoint yet; a path continues the run that holds this checkpoint.
        job: number of the job in a multirun, None in a single run.

    Raises:
        CelerisError: the checkpoint does not exist, or the folder already holds a run that was not asked for.
    """
    if run_id is not None and (not run_id or Path(run_id).name != run_id):
        raise CelerisError(f"run_id={run_id!r} must be the name of a folder, without a path.")
    known = run_id or _shared_id(job)
    if ckpt is None:
        run = Run(parent / (known or _fresh_id(job)))
        if (run.checkpoints / "last.ckpt").exists():
            raise CelerisError(f"{run.folder} already holds a run; add ckpt=last to continue it, or another run_id=.")
        return run
    if ckpt == "last":
        folder = parent / known if known else _newest(parent)
        if folder is None:
            return Run(parent / _fresh_id(job))
        if job is None:
            os.environ[RUN_ID] = folder.name
        last = folder / "checkpoints" / "last.ckpt"
        return Run(folder, last if last.exists() else None)
    path = Path(ckpt).absolute()
    if not path.is_file():
        near = [item.name for item in path.parent.glob("*.ckpt")]
        tail = hint(path.name, near) if near else "give ckpt=last or the path of a .ckpt file."
        raise CelerisError(f"There is no checkpoint {ckpt}; {tail}")
    if path.parent.name == "checkpoints" and run_id is None:
        return Run(path.parent.parent, path)
    return Run(parent / (known or _fresh_id(job)), path)


def is_first_rank() -> bool:
    """Whether this process writes what only one may write; known before any process group exists."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "NODE_RANK"))


def in_cluster_job() -> bool:
    """Whether SLURM runs this command as a job. A shell inside an allocation is none: many commands run in it."""
    return "SLURM_JOB_ID" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def _shared_id(job: int | None) -> str | None:
    """The id that all ranks, and the requeued job, know without talking to each other."""
    names = os.environ
    if RUN_ID in names and job is None:
        return names[RUN_ID]
    if in_cluster_job():
        parts = [names.get("SLURM_ARRAY_JOB_ID", names["SLURM_JOB_ID"]), names.get("SLURM_ARRAY_TASK_ID"), job]
        return "-".join(["slurm", *(str(part) for part in parts if part is not None)])
    if names.get("TORCHELASTIC_RUN_ID", "none") != "none":
        return "torchrun-" + names["TORCHELASTIC_RUN_ID"]
    return None


def _fresh_id(job: int | None) -> str:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise CelerisError("These ranks share no job id; give all of them the same run_id=.")
    chosen = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    if job is None:
        os.environ[RUN_ID] = chosen
    return chosen


def _newest(parent: Path) -> Path | None:
    found = sorted(parent.glob("*/checkpoints/last.ckpt"), key=lambda path: path.stat().st_mtime)
    return found[-1].parent.parent if found else None
