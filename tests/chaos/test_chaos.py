"""A few of the kills and signals of `make chaos`, and what starting ranks by a launcher adds to them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from celeris.config.resolvers import ROOT
from tests.chaos import kills, runs, signals

pytestmark = pytest.mark.slow
CLUSTER = ("SLURM", "CELERIS", "TORCHELASTIC")


@pytest.mark.parametrize("world_size", [1, 2])
def test_killed_runs_end_as_the_one_that_was_not(tmp_path: Path, world_size: int) -> None:
    kills.chaos(tmp_path, world_size, 3, seed=world_size)


def test_signals_end_all_ranks_after_the_step(tmp_path: Path) -> None:
    signals.preempt(tmp_path, 2, 3, seed=7)


def start(place: Path, *launcher: str, **environment: str) -> subprocess.Popen[str]:
    """A run of many steps on two ranks that a launcher, or the first of them, starts."""
    runs.corpus(place)
    words = runs.words(place, "mine", steps=10**6, ranks=2)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(CLUSTER)}
    command = [sys.executable, *launcher, str(ROOT / "train.py"), *words]
    return subprocess.Popen(
        command, env={**clean, "CHAOS_START": "0", **environment}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def ranks_of(process: subprocess.Popen[str]) -> dict[int, int]:
    """LOCAL_RANK → process id of the started ranks that exist, the first of Lightning's not among them."""
    found = {}
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            names = dict(part.partition("=")[::2] for part in environ.read_text().split("\0"))
            words = (environ.parent / "cmdline").read_text()
        except OSError:
            continue
        pid = int(environ.parent.name)
        if "LOCAL_RANK" in names and "train.py" in words and os.getsid(pid) == process.pid:
            found[int(names["LOCAL_RANK"])] = pid
    return found


def until(true: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def is_training(place: Path) -> bool:
    return (runs.folder(place, "mine") / "metrics.jsonl").exists()


def gone(pid: int, seconds: float) -> bool:
    """Whether the process has ended, or does within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def test_a_signal_to_a_rank_that_lightning_started_is_the_status_of_the_command(tmp_path: Path) -> None:
    process = start(tmp_path)
    until(lambda: is_training(tmp_path), process)
    child = ranks_of(process)[1]
    os.kill(child, signal.SIGUSR1)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGUSR1, out
    assert "to continue: the same command with run_id=mine ckpt=last" in out and gone(child, 10)
    assert runs.last(tmp_path, "mine")["global_step"] > 0


def test_a_rank_whose_first_rank_was_killed_while_starting_ends_by_itself(tmp_path: Path) -> None:
    """It waits for nobody: neither in the first meeting of the ranks, half an hour long, nor in a collective."""
    process = start(tmp_path)
    until(lambda: 1 in ranks_of(process), process)
    child = ranks_of(process)[1]
    process.kill()
    assert gone(child, 120)
    process.communicate()


def test_torchrun_passes_the_signal_on(tmp_path: Path) -> None:
    torchrun = (
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        "--rdzv_backend=c10d",
        "--rdzv_endpoint=localhost:0",
    )
    process = start(tmp_path, *torchrun)
    until(lambda: is_training(tmp_path), process)
    started = ranks_of(process)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=180)
    assert process.returncode != 0 and "to continue: the same command" in out, out
    assert runs.last(tmp_path, "mine")["global_step"] > 0 and all(gone(pid, 10) for pid in started.values())
