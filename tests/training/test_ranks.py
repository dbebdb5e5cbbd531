"""Two processes on the CPU: the same samples, the same steps, the same held-out figure as one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from celeris.training.loggers import read_jsonl

PROGRAM = """
import sys
from pathlib import Path
from tests.training.tiny import *
devices, folder = int(sys.argv[1]), Path(sys.argv[2])
module = tiny_module(tiny_model(GumbelSchedule(1.0), dropout=0.0), optimizer=plain_descent)
fit(folder, module, max_steps=5, val_every_n_steps=5, devices=devices, strategy='ddp' if devices > 1 else 'auto')
"""


@pytest.mark.slow
def test_two_ranks_are_one(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for devices in (1, 2):
        command = [sys.executable, program, str(devices), tmp_path / str(devices)]
        subprocess.run(command, env=env, check=True, timeout=300)
    one, two = (torch.load(tmp_path / n / "checkpoints" / "last.ckpt", weights_only=True) for n in "12")
    for name, value in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], value, atol=1e-5, rtol=1e-4, msg=name)
    metrics = [read_jsonl(tmp_path / n / "metrics.jsonl") for n in "12"]
    assert [line["step"] for line in metrics[0]] == [line["step"] for line in metrics[1]]  # one writer
    held_out = [[line["val/loss"] for line in lines if "val/loss" in line] for lines in metrics]
    assert len(held_out[0]) == 1  # 5 held-out rows: on two ranks the sixth only fills up and must not count
    assert held_out[1] == pytest.approx(held_out[0], rel=1e-5)
