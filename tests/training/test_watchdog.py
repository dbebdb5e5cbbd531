"""What hangs says where, and ends; what works, however long, does not."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import lightning as L
import pytest

from celeris.errors import CelerisError
from celeris.training.callbacks import Checkpoints, Watchdog, watchdog
from celeris.training.callbacks.periodic import Periodic
from tests.training.tiny import fit

PROGRAM = """
import sys, time
from pathlib import Path
import lightning as L
from celeris.training.callbacks import StopOnSignal, Watchdog
from tests.training.tiny import *

class Stall(L.Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == 2:
            dog.seconds = 5  # only now, so that a slow start is none
            if trainer.global_rank == 1:
                stand_still()

def stand_still():
    time.sleep(600)

dog = Watchdog(minutes=10, grace_seconds=15)
fit(Path(sys.argv[1]), max_steps=5, devices=2, strategy='ddp_find_unused_parameters_true',
    callbacks=[dog, StopOnSignal(), Stall()])
"""


@pytest.mark.slow
def test_ranks_that_wait_for_one_another_say_so_and_end(tmp_path):
    program = tmp_path / "run.py"
    program.write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, program, tmp_path], env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == watchdog.EXIT_STATUS == 75, done
    for rank in (0, 1):
        assert f"rank {rank} of 2 on " in done.stderr
    assert "after step 2" in done.stderr and "in stand_still" in done.stderr  # the one, and those that wait for it


class Clock:
    """Time that passes where a test says so; `hour` also asks the watchdog, from a thread of its own as it is."""

    def __init__(self, dog: Watchdog) -> None:
        self.dog, self.now, self.main = dog, 0.0, threading.get_ident()
        self.verdicts: list[bool] = []

    def hour(self) -> None:
        self.now += 3600
        thread = threading.Thread(target=lambda: self.verdicts.append(self.dog._hangs(self.main)))
        thread.start()
        thread.join()


class Look(Periodic):
    def __init__(self, clock: Clock) -> None:
        super().__init__(every_n_steps=2)
        self.clock = clock

    def look(self, trainer, module):
        self.clock.hour()


class Save(Checkpoints):
    def __init__(self, clock: Clock, folder: Path) -> None:
        super().__init__(folder, every_n_steps=2)
        self.clock = clock

    def _forget_old(self) -> None:
        self.clock.hour()


class Stall(L.Callback):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx == 3:
            self.clock.hour()


@pytest.mark.parametrize("stalls", [False, True])
def test_long_work_is_no_hang(tmp_path, monkeypatch, stalls):
    """An hour of saving or sampling under a limit of 30 minutes is left alone, anywhere else it is not."""
    dog = Watchdog(minutes=30)
    clock = Clock(dog)
    monkeypatch.setattr(dog, "_watch", lambda trainer, main: None)
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: clock.now)
    work = [Stall(clock)] if stalls else [Look(clock), Save(clock, tmp_path / "others")]
    fit(tmp_path, max_steps=4, val_every_n_steps=2, callbacks=[dog, *work])
    assert len(clock.verdicts) == (1 if stalls else 4) and set(clock.verdicts) == {stalls}


def test_the_thread_ends_with_the_training(tmp_path):
    fit(tmp_path, max_steps=1, callbacks=[Watchdog(minutes=30)])
    deadline = time.monotonic() + 10
    while any(thread.name == "watchdog" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}


def test_a_limit_must_be_positive():
    with pytest.raises(CelerisError, match="callbacks.watchdog=null"):
        Watchdog(0)
