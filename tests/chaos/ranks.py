"""Ranks of train.py as processes that start in a moment: forked from a server that has imported everything."""

import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["celeris.tasks.train", "celeris.tasks.cli", "celeris.training.trainer", "rich.console",
                                "celeris.training.module", "celeris.training.callbacks", "celeris.training.optim",
                                "celeris.objectives", "celeris.noise", "celeris.sampling"])  # fmt: skip
CLUSTER = ("SLURM", "CELERIS", "TORCHELASTIC")


class Rank(NamedTuple):
    process: multiprocessing.process.BaseProcess
    log: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def code(self) -> int | None:
        """Its exit status, −9 after SIGKILL; None while it runs."""
        return self.process.exitcode


def start(words: Sequence[str], world_size: int, folder: Path) -> list[Rank]:
    """`python train.py <words>` on every rank, as a launcher that makes the processes itself would start them."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks, began = [], str(time.time())
    for number in range(world_size):
        own = {"LOCAL_RANK": str(number), "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        log = folder / f"rank-{number}.log"
        process = CONTEXT.Process(
            target=_rank, args=(list(words), {"CHAOS_START": began, **(own if world_size > 1 else {})}, str(log))
        )
        process.start()
        ranks.append(Rank(process, log))
    return ranks


def finish(ranks: Sequence[Rank], seconds: float) -> list[int | None]:
    """Wait until all have ended by themselves; None for one that had not after `seconds` and was killed."""
    deadline = time.monotonic() + seconds
    codes = []
    for rank in ranks:
        rank.process.join(max(deadline - time.monotonic(), 0.0))
        codes.append(rank.code)
        if rank.code is None:
            rank.process.kill()
            rank.process.join()
    return codes


def logs(ranks: Sequence[Rank]) -> str:
    return "\n".join(f"--- {rank.log.name}\n{rank.log.read_text()}" for rank in ranks if rank.log.exists())


def leftovers(ranks: Sequence[Rank], seconds: float = 20.0) -> list[int]:
    """Processes of the ranks' sessions that still exist after `seconds`."""
    deadline, found = time.monotonic() + seconds, [0]
    while found and time.monotonic() < deadline:
        found = [pid for rank in ranks for pid in _session(rank.pid)]
        time.sleep(0.1 if found else 0)
    return found


def _session(leader: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def _rank(words: list[str], environment: dict[str, str], log: str) -> None:
    for name in [name for name in os.environ if name.startswith(CLUSTER)]:
        del os.environ[name]
    os.environ.update(environment)
    os.setsid()  # so that a signal can be sent to the rank and its loader workers together, as a cluster does
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1), os.dup2(file, 2)
    from celeris.tasks.cli import main
    from celeris.tasks.train import train

    code = main(train, words)
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)
