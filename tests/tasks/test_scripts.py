"""The three scripts as a user starts them: a process of their own, from any folder, and on two ranks."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from celeris.config.resolvers import ROOT
from tests.tasks.conftest import Workplace

CLUSTER = ("SLURM", "CELERIS", "TORCHELASTIC")


def script(name: str, *words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(CLUSTER)}
    command = [sys.executable, str(ROOT / f"{name}.py"), *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, env={**clean, **environment})


def test_help_names_the_groups_and_changes_nothing(tmp_path: Path) -> None:
    done = script("train", "-h", cwd=tmp_path)
    assert done.returncode == 0 and "experiment" in done.stdout and "tiny_long" in done.stdout, done
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    done = script("sample", "prompt=Hello, world", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")


@pytest.mark.slow
def test_prompts_from_standard_input(workplace: Workplace, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "sample.py"), *workplace.words, "prompt_file=-", "max_new_tokens=8"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, input="a=b\n日本 👩‍👩‍👧\n".encode(), timeout=300)
    assert done.returncode == 0, done
    assert "a=b" in done.stdout.decode() and "日本 👩‍👩‍👧" in done.stdout.decode()


@pytest.mark.slow
@pytest.mark.parametrize("logger", ["none", "wandb_offline"])
def test_two_ranks_make_one_run(workplace: Workplace, tmp_path: Path, logger: str) -> None:
    """F8: one folder, one configuration, one W&B run, and the weights of a run on one rank."""
    words = [*workplace.training, f"paths.runs_dir={tmp_path / 'runs'}", f"logger={logger}", "trainer=ddp_cpu"]
    done = script("train", *words, cwd=tmp_path)
    assert done.returncode == 0, done
    (run,) = (tmp_path / "runs" / "debug").iterdir()
    assert done.stdout.count(str(run)) == 1
    assert len(list(run.glob("config*.yaml"))) == 1
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line] == [1, 2, 3, 4]
    assert len(list(run.glob("wandb/offline-run*"))) == (1 if logger == "wandb_offline" else 0)
    assert (run / "export" / "model.safetensors").is_file()


@pytest.mark.slow
def test_slurm_tasks_and_devices_that_disagree(workplace: Workplace, tmp_path: Path) -> None:
    """I1: an error that names both, within a minute; and a shell inside an allocation just works."""
    slurm = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NAME": "job"}
    more = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost"}
    words = [*workplace.training, f"paths.runs_dir={tmp_path / 'runs'}"]
    ranks = ["trainer.devices=2", "trainer.strategy=ddp", "trainer.accelerator=cpu", "micro_batch_size=2"]
    done = script("train", *words, *ranks, cwd=tmp_path, **slurm, **more)
    assert done.returncode == 2 and done.stderr.strip().splitlines()[-1].startswith("error: "), done
    assert "ntasks" in done.stderr.lower() and "devices" in done.stderr, done
    shell = script("train", *words, cwd=tmp_path, **{**slurm, "SLURM_JOB_NAME": "bash"}, **more)
    assert shell.returncode == 0, shell


@pytest.mark.slow
def test_a_multirun_makes_a_folder_for_each_job(workplace: Workplace, tmp_path: Path) -> None:
    words = ["-m", *workplace.training, f"paths.runs_dir={tmp_path / 'runs'}", "seed=1,2", "trainer.max_steps=2"]
    done = script("train", *words, cwd=tmp_path)
    assert done.returncode == 0, done
    assert len(list((tmp_path / "runs" / "debug").glob("*/export"))) == 2
    refused = script("train", *words, "trainer=ddp_cpu", cwd=tmp_path)
    assert refused.returncode == 2 and "multirun" in refused.stderr, refused


@pytest.mark.slow
def test_a_terminated_run_says_so_and_is_continued_by_the_same_command(workplace: Workplace, tmp_path: Path) -> None:
    """I2, I3: SIGTERM ends in a checkpoint and status 143; the command with `ckpt=last` then goes on in the folder."""
    words = [*workplace.training, f"paths.runs_dir={tmp_path / 'runs'}", "run_id=mine", "ckpt=last"]
    run = tmp_path / "runs" / "debug" / "mine"
    command = [sys.executable, str(ROOT / "train.py"), *words, "trainer.max_steps=1000000"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGTERM, (out, err)
    assert "to continue: the same command with run_id=mine ckpt=last" in out
    done = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    again = script("train", *words, f"trainer.max_steps={done + 2}", cwd=tmp_path)
    assert again.returncode == 0 and f"{done + 2:,} steps done" in again.stdout, again
    assert [path.name for path in (tmp_path / "runs" / "debug").iterdir()] == ["mine"]
