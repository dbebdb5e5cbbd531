"""Every way of starting ranks: one run directory, every rank in its place, and a sentence where the counts disagree."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from celeris.config.resolvers import ROOT
from celeris.errors import CelerisError
from celeris.tasks.ranks import adopt_local_tasks, check_ranks
from tests.tasks.conftest import Workplace

FOREIGN = ("SLURM", "SUBMITIT", "CELERIS", "TORCHELASTIC", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_")
SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NAME": "train",
    "SLURM_NTASKS": "2",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_NNODES": "1",
    "SLURM_NODEID": "0",
    "SLURM_NODELIST": "localhost",
    "SLURM_STEP_ID": "0",
}


def clean_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}


def start(words: list[str], **environment: str) -> subprocess.Popen[str]:
    env = {**clean_environment(), **environment}
    return subprocess.Popen(words, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(*processes: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    said = [process.communicate(timeout=500) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def training(workplace: Workplace, runs: Path) -> list[str]:
    return [*workplace.training, f"paths.runs_dir={runs}", "trainer=ddp_cpu", "callbacks=none"]


def assert_one_run(run: Path, steps: int = 4, starts: int = 1) -> None:
    assert len(list(run.glob("config*.yaml"))) == len(list(run.glob("environment*.json"))) == starts
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line] == list(range(1, steps + 1))
    assert (run / "export" / "model.safetensors").is_file()


@pytest.mark.slow
def test_torchrun_without_an_id(workplace: Workplace, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--rdzv-id=none"]
    ((code, out, err),) = ended(start([*words, str(ROOT / "train.py"), *training(workplace, tmp_path)]))
    assert code == 0, (out, err)
    (run,) = (tmp_path / "debug").iterdir()
    assert_one_run(run)
    assert out.count(f"run {run}") == 1


@pytest.mark.slow
def test_srun_and_a_requeue(workplace: Workplace, tmp_path: Path) -> None:
    """The second start is SLURM's: it goes on in the same folder without having been told to."""
    for steps, more in ((4, {}), (6, {"SLURM_RESTART_COUNT": "1"})):
        words = [sys.executable, str(ROOT / "train.py"), *training(workplace, tmp_path), f"trainer.max_steps={steps}"]
        ranks = [start(words, **SLURM, **more, SLURM_PROCID=rank, SLURM_LOCALID=rank) for rank in "01"]
        results = ended(*ranks)
        assert [code for code, *_ in results] == [0, 0], results
        assert ("continuing from" in results[0][1]) == bool(more) and "continuing from" not in results[1][1]
    assert [run.name for run in (tmp_path / "debug").iterdir()] == ["slurm-17"]
    assert_one_run(tmp_path / "debug" / "slurm-17", steps=6, starts=2)


@pytest.mark.slow
def test_submitit_starts_the_ranks_of_every_job(workplace: Workplace, tmp_path: Path) -> None:
    """I9: one folder a job, two ranks in it, and nobody runs the multirun again."""
    words = [sys.executable, str(ROOT / "train.py"), "-m", "hydra/launcher=submitit_local", "seed=1,2"]
    ((code, out, err),) = ended(start([*words, *training(workplace, tmp_path)]))
    assert code == 0, (out, err)
    runs = sorted((tmp_path / "debug").iterdir())
    assert [run.name[-2:] for run in runs] == ["-0", "-1"] and len({run.name[:-2] for run in runs}) == 1
    for run in runs:
        assert_one_run(run)
    (sweep,) = (tmp_path / "multirun").iterdir()
    output = "".join(file.read_text() for file in sweep.glob(".submitit/*/*_log.*"))
    assert output.count("GLOBAL_RANK: 0, MEMBER: 1/2") == output.count("GLOBAL_RANK: 1, MEMBER: 2/2") == 2


@pytest.mark.slow
def test_a_mistake_in_a_job_reaches_the_one_who_waits(workplace: Workplace, tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "train.py"), "-m", "hydra/launcher=submitit_local", "global_batch_size=3"]
    ((code, _, err),) = ended(start([*words, *training(workplace, tmp_path)]))
    assert code == 2 and "Traceback" not in err
    assert err.strip().splitlines()[-1].startswith("error: global_batch_size=3 cannot be shared equally by 2 processes")


def test_the_slurm_launcher_asks_for_one_task_a_gpu(tmp_path: Path) -> None:
    """What sbatch is given: a program of that name keeps the script and refuses."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(f'#!/bin/sh\nfor file; do :; done\ncp "$file" {tmp_path}/script\necho refused >&2\nexit 1\n')
    sbatch.chmod(0o755)
    (sbatch.parent / "srun").symlink_to(sbatch)
    words = [sys.executable, str(ROOT / "train.py"), "-m", "hydra/launcher=slurm", "trainer=ddp", "trainer.num_nodes=2"]
    words += [f"hydra.launcher.{word}" for word in ("gpus_per_node=8", "partition=gpu", "account=me", "timeout_min=90")]
    words += [f"paths.runs_dir={tmp_path}"]
    ((code, _, err),) = ended(start(words, PATH=f"{sbatch.parent}:{os.environ['PATH']}"))
    assert code == 2 and "Traceback" not in err and "refused" in err, err
    script = (tmp_path / "script").read_text()
    for option in (
        "nodes=2", "ntasks-per-node=8", "gpus-per-node=8", "partition=gpu", "account=me", "time=90", "requeue",
        "signal=USR2@120",
    ):  # fmt: skip
        assert f"#SBATCH --{option}\n" in script, script


def fake_trainer(devices: int, nodes: int = 1, external: bool = True) -> SimpleNamespace:
    strategy = SimpleNamespace(cluster_environment=SimpleNamespace(creates_processes_externally=external))
    return SimpleNamespace(num_devices=devices, num_nodes=nodes, world_size=devices * nodes, strategy=strategy)


@pytest.mark.parametrize(
    ("environment", "trainer", "words"),
    [
        ({**SLURM, "SLURM_NTASKS": "4"}, fake_trainer(2), "ntasks=4.*devices=2.*start 2 task"),
        ({**SLURM, "SLURM_STEP_ID": None}, fake_trainer(2), "ntasks=2.*put srun before"),
        (
            {**SLURM, "SLURM_JOB_NAME": "bash", "SLURM_STEP_NUM_TASKS": "2"},
            fake_trainer(2),
            "started 2 tasks.*JOB_NAME",
        ),
        ({"SUBMITIT_LOCAL_NTASKS": "1"}, fake_trainer(2), "submitit has ntasks=1.*devices=2.*tasks_per_node"),
        ({}, fake_trainer(1, nodes=2, external=False), "num_nodes=2.*srun or torchrun"),
        (SLURM, fake_trainer(2), None),
        ({**SLURM, "SLURM_NTASKS": "1", "TORCHELASTIC_RUN_ID": "none"}, fake_trainer(2), None),  # srun torchrun
        ({**SLURM, "SLURM_NTASKS": "1", "SLURM_JOB_NAME": "interactive"}, fake_trainer(1), None),
        ({}, fake_trainer(2, external=False), None),
    ],
)
def test_counts_that_disagree_are_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str | None], trainer: SimpleNamespace, words: str | None
) -> None:
    for name in list(os.environ):
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    if words is None:
        check_ranks(trainer, many=False)
        return
    with pytest.raises(CelerisError, match=words):
        check_ranks(trainer, many=False)


def test_a_multirun_of_several_ranks_needs_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "")
    monkeypatch.delenv("SUBMITIT_EXECUTOR")
    check_ranks(fake_trainer(1), many=True)
    with pytest.raises(CelerisError, match="hydra/launcher=submitit_local"):
        check_ranks(fake_trainer(2), many=True)
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    check_ranks(fake_trainer(2), many=True)


def test_tasks_of_submitit_become_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "local")
    monkeypatch.setenv("SUBMITIT_LOCAL_LOCALID", "1")
    monkeypatch.setenv("SUBMITIT_LOCAL_JOB_ID", "4123456")
    adopt_local_tasks()
    assert (os.environ["LOCAL_RANK"], os.environ["MASTER_ADDR"]) == ("1", "127.0.0.1")
    assert 10_000 <= int(os.environ["MASTER_PORT"]) < 30_000
