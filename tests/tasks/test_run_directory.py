"""Run ids: one a job, the same on every rank and after a requeue; resuming stays in the run's folder."""

import os
import zipfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from torch.distributed import TCPStore

from celeris.errors import CelerisError
from celeris.tasks import ranks
from celeris.tasks.ranks import is_first_rank
from celeris.tasks.run_directory import RUN_ID, SWEEP_ID, open_run
from celeris.tasks.run_files import check_same_run, write_run_files

NAMES = (RUN_ID, SWEEP_ID, "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "TORCHELASTIC_RUN_ID")
NAMES += ("WORLD_SIZE", "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE")


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "SLURM_PROCID", "NODE_RANK"):
        monkeypatch.setenv(name, "")  # so that what a test sets, itself or through the code, is undone
        monkeypatch.delenv(name)


def checkpoint(folder: Path, name: str = "last.ckpt") -> Path:
    file = folder / "checkpoints" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    zipfile.ZipFile(file, "w").close()  # whole, if empty
    return file


def test_ids_are_new_but_shared_with_started_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_run(tmp_path, None, None)
    assert open_run(tmp_path, None, None) == first  # a rank this process starts inherits its environment
    monkeypatch.delenv(RUN_ID)
    assert open_run(tmp_path, None, None).id != first.id
    assert open_run(tmp_path, "mine", None).folder == tmp_path / "mine"


def test_jobs_of_a_multirun_have_their_own_ids(tmp_path: Path) -> None:
    assert len({open_run(tmp_path, None, None, job).id for job in range(3)}) == 3


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_JOB_ID": "17"}, "slurm-17"),
        ({"SLURM_JOB_ID": "19", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "2"}, "slurm-17-2"),
        ({"TORCHELASTIC_RUN_ID": "abc", "WORLD_SIZE": "2"}, "torchrun-abc"),
    ],
)
def test_a_cluster_names_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert open_run(tmp_path, None, None).id == expected
    assert open_run(tmp_path, None, "last") == open_run(tmp_path, None, "last")
    assert open_run(tmp_path, None, "last").resume_from is None
    last = checkpoint(tmp_path / expected)
    assert open_run(tmp_path, None, "last").resume_from == last  # the requeued job goes on (I3)
    assert open_run(tmp_path, "other", None).id == "other"


def test_ranks_that_share_nothing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # what torchrun sets when it was not told
    with pytest.raises(CelerisError, match="run_id="):
        open_run(tmp_path, None, None)
    assert open_run(tmp_path, "mine", None).id == "mine"


def test_the_ranks_of_torchrun_take_the_first_ones_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id is "none" unless it was told; the store of its agent outlives a restart of the ranks."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in {
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
    }.items():
        monkeypatch.setenv(name, value)

    def ask(rank: int) -> str:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.delenv(RUN_ID, raising=False)
        return open_run(tmp_path, None, None).id

    first = ask(0)
    assert ask(1) == ask(0) == first
    monkeypatch.setattr(ranks, "STORE_SECONDS", 1)
    monkeypatch.setenv("MASTER_PORT", str(TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port))
    with pytest.raises(CelerisError, match="Rank 1 on .* got no run id from rank 0 within 1 s"):
        ask(1)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({"SLURM_JOB_ID": "17"}, {}),
        ({"SLURM_JOB_ID": "17"}, {"SLURM_RESTART_COUNT": "1"}),
        ({"TORCHELASTIC_RUN_ID": "abc", "WORLD_SIZE": "2"}, {"TORCHELASTIC_RESTART_COUNT": "1"}),
    ],
)
def test_what_a_machine_starts_again_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: dict[str, str], again: dict[str, str]
) -> None:
    for name, value in first.items():
        monkeypatch.setenv(name, value)
    last = checkpoint(open_run(tmp_path, None, None).folder)
    mine = checkpoint(tmp_path / "mine")
    for name, value in again.items():
        monkeypatch.setenv(name, value)
    run = open_run(tmp_path, None, None)
    assert (run.resume_from, run.own) == (last, not again)
    if again:
        assert open_run(tmp_path, "mine", None).resume_from == mine
    else:  # a person's second command
        with pytest.raises(CelerisError, match="ckpt=last"):
            open_run(tmp_path, "mine", None)


def test_a_person_says_that_a_torchrun_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "abc")
    checkpoint(tmp_path / "torchrun-abc")
    with pytest.raises(CelerisError, match="ckpt=last"):
        open_run(tmp_path, None, None)


def test_the_jobs_of_a_sweep_share_its_id_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWEEP_ID, "s")
    assert [open_run(tmp_path, None, None, job).id for job in range(2)] == ["s-0", "s-1"]
    last = checkpoint(tmp_path / "s-1")
    assert open_run(tmp_path, None, None, 1).resume_from == last
    assert open_run(tmp_path, None, None).id != "s"


def test_a_second_training_of_a_job_does_not_continue_the_first(tmp_path: Path) -> None:
    config = OmegaConf.create({"optimizer": {"lr": 0.1}})
    check_same_run(tmp_path, config)
    write_run_files(tmp_path, config)
    check_same_run(tmp_path, config)
    with pytest.raises(CelerisError, match=r"optimizer\.lr: 0\.1 -> 0\.2.*run_id="):
        check_same_run(tmp_path, OmegaConf.create({"optimizer": {"lr": 0.2}}))


def test_last_is_the_newest_run_or_a_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_run(tmp_path, None, "last").resume_from is None
    monkeypatch.delenv(RUN_ID)
    old, new = checkpoint(tmp_path / "a"), checkpoint(tmp_path / "b")
    os.utime(old, (1, 1)), os.utime(new, (2, 2))
    run = open_run(tmp_path, None, "last")
    assert (run.folder, run.resume_from) == (tmp_path / "b", new)
    assert open_run(tmp_path, "a", "last").resume_from == old


def test_a_path_resumes_in_its_own_folder(tmp_path: Path) -> None:
    file = checkpoint(tmp_path / "elsewhere" / "run", "step_00000010.ckpt")
    assert open_run(tmp_path / "tiny", None, str(file)).folder == tmp_path / "elsewhere" / "run"
    with pytest.raises(CelerisError, match="step_00000010.ckpt"):
        open_run(tmp_path, None, str(file.with_name("step_00000011.ckpt")))


def test_a_used_folder_is_not_overwritten(tmp_path: Path) -> None:
    checkpoint(tmp_path / "mine")
    with pytest.raises(CelerisError, match="ckpt=last"):
        open_run(tmp_path, "mine", None)
    with pytest.raises(CelerisError, match="without a path"):
        open_run(tmp_path, "a/b", None)


def test_only_one_rank_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_first_rank()
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.setenv(name, "1")
        assert not is_first_rank()
        monkeypatch.delenv(name)
