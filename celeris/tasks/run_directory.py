"""Where a training run lives: `runs/<experiment>/<run id>/`, the same folder on every rank and after a resume."""

import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from celeris.config.nearest import hint
from celeris.errors import CelerisError
from celeris.tasks.ranks import agreed, in_cluster_job, restarted
from celeris.tasks.whole import check_whole, newest_whole

RUN_ID = "CELERIS_RUN_ID"
"""Environment variable by which the ranks that this process starts learn the id."""
SWEEP_ID = "CELERIS_SWEEP_ID"
"""Environment variable by which the jobs of a multirun, their ranks and their requeues learn the multirun's id."""


@dataclass(frozen=True)
class Run:
    """A run's folder and the checkpoint it continues from (None: from the start).

    Attributes:
        own: it continues because the same job was here before, without having been asked for.
    """

    folder: Path
    resume_from: Path | None = None
    own: bool = False

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

    A run whose id is that of the cluster job, or of the launcher's, is continued without being asked: only a requeue
    (or a second srun of the same job, see `check_same_run`) can find it. So is any run that SLURM or torchrun starts
    again by itself. A person who starts a command again says ckpt=last.

    Raises:
        CelerisError: the checkpoint does not exist, or the folder already holds a run that was not asked for.
    """
    if run_id is not None and (not run_id or Path(run_id).name != run_id):
        raise CelerisError(f"run_id={run_id!r} must be the name of a folder, without a path.")
    known = run_id or _shared_id(job)
    if ckpt is None:
        run = Run(parent / (known or _fresh_id(job)))
        if not (run.checkpoints / "last.ckpt").exists():
            return run
        if restarted() or (run_id is None and _is_unique(job)):
            return Run(run.folder, newest_whole(run.checkpoints), own=not restarted())
        raise CelerisError(f"{run.folder} already holds a run; add ckpt=last to continue it, or another run_id=.")
    if ckpt == "last":
        folder = parent / (known or _fresh_id(job, _newest(parent)))
        return Run(folder, newest_whole(folder / "checkpoints"))
    path = Path(ckpt).absolute()
    if not path.exists():
        near = [item.name for item in path.parent.glob("*.ckpt")]
        tail = hint(path.name, near) if near else "give ckpt=last or the path of a .ckpt file."
        raise CelerisError(f"There is no checkpoint {ckpt}; {tail}")
    check_whole(path)
    if path.parent.name == "checkpoints" and run_id is None:
        return Run(path.parent.parent, path)
    return Run(parent / (known or _fresh_id(job)), path)


def _shared_id(job: int | None) -> str | None:
    """The id that all ranks, and the requeued job, know without talking to each other."""
    names = os.environ
    if RUN_ID in names and job is None:
        return names[RUN_ID]
    if in_cluster_job():
        parts = [names.get("SLURM_ARRAY_JOB_ID", names["SLURM_JOB_ID"]), names.get("SLURM_ARRAY_TASK_ID"), job]
        return "-".join(["slurm", *(str(part) for part in parts if part is not None)])
    if SWEEP_ID in names and job is not None:
        return f"{names[SWEEP_ID]}-{job}"
    if names.get("TORCHELASTIC_RUN_ID", "none") != "none":
        return "torchrun-" + names["TORCHELASTIC_RUN_ID"]
    return None


def _is_unique(job: int | None) -> bool:
    """Whether `_shared_id` is used once: by one job of a cluster, or one of a multirun, and by whatever restarts it."""
    return in_cluster_job() or (SWEEP_ID in os.environ and job is not None)


def new_id() -> str:
    """Time and chance."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _fresh_id(job: int | None, proposal: str | None = None) -> str:
    """`proposal`, or a new id; every rank that will ever ask gets the same."""
    proposal = proposal or new_id()
    if job is not None:
        return proposal
    os.environ[RUN_ID] = chosen = agreed(proposal, "run id")
    return chosen


def _newest(parent: Path) -> str | None:
    found = sorted(parent.glob("*/checkpoints/last.ckpt"), key=lambda path: path.stat().st_mtime)
    return found[-1].parent.parent.name if found else None
