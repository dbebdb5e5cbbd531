"""Ranks that Lightning starts as children of the first one end with it."""

import os
import signal
import threading
import time

FIRST = "CELERIS_FIRST_RANK"
"""Environment variable with the process id of the rank that starts the others."""


def end_with_first_rank(every: float = 1.0) -> None:
    """Call before any rank waits for another: a child whose parent was killed would wait for it for half an hour.

    Does nothing but leave its own process id to a process that no first rank has started; ranks of srun and torchrun
    are ended by those.

    Args:
        every: seconds between two looks.
    """
    if not _is_started_by_first_rank():
        os.environ[FIRST] = str(os.getpid())
        return
    first = int(os.environ[FIRST])

    def watch() -> None:
        while os.getppid() == first:
            time.sleep(every)
        os.kill(os.getpid(), signal.SIGKILL)  # nothing gentler ends a process that waits in a collective

    threading.Thread(target=watch, daemon=True, name="end-with-first-rank").start()


def _is_started_by_first_rank() -> bool:
    """Whether this process is a rank that Lightning started from another one."""
    own, names = str(os.getpid()), os.environ
    alone = "SLURM_PROCID" in names or "TORCHELASTIC_RUN_ID" in names or names.get("LOCAL_RANK", "0") == "0"
    return not alone and names.get(FIRST, own) != own
