"""Two processes on the CPU: the same samples, the same steps, the same held-out figure as one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from celeris.training.loggers import read_jsonl

PROGRAM = """
import os, signal, sys
from pathlib import Path
import lightning as L
from celeris.training.callbacks import EmbeddingHealth, Speed, StopOnSignal
from tests.training.tiny import *

class Preempt(L.Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_rank == 1 and trainer.global_step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

folder, devices, preempted = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ['preempted']
module = tiny_module(tiny_model(GumbelSchedule(1.0), dropout=0.0), optimizer=plain_descent)
watchers = [StopOnSignal(), Speed(2), EmbeddingHealth(every_n_steps=2)]
fit(folder, module, max_steps=5, val_every_n_steps=5, devices=devices,
    strategy='ddp_find_unused_parameters_true' if devices > 1 else 'auto',
    callbacks=[Preempt(), *watchers] if preempted else watchers)
"""


def start(folder: Path, *words: str) -> None:
    program = folder.with_suffix(".py")
    program.write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, program, folder, *words], env=env, check=True, timeout=600)


@pytest.mark.slow
def test_two_ranks_are_one(tmp_path):
    for devices in "12":
        start(tmp_path / devices, devices)
    one, two = (torch.load(tmp_path / n / "checkpoints" / "last.ckpt", weights_only=True) for n in "12")
    for name, value in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], value, atol=1e-5, rtol=1e-4, msg=name)
    metrics = [read_jsonl(tmp_path / n / "metrics.jsonl") for n in "12"]
    assert [line["step"] for line in metrics[0]] == [line["step"] for line in metrics[1]]  # one writer
    held_out = [[line["val/loss"] for line in lines if "val/loss" in line] for lines in metrics]
    assert len(held_out[0]) == 1  # 5 held-out rows: on two ranks the sixth only fills up and must not count
    assert held_out[1] == pytest.approx(held_out[0], rel=1e-5)


@pytest.mark.slow
def test_a_signal_to_one_rank_ends_all_after_the_same_step(tmp_path):
    start(tmp_path / "run", "2", "preempted")
    assert torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 3
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines if "train/loss" in line] == [1, 2, 3]
