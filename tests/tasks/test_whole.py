"""A checkpoint that a disk has damaged is seen, named, and not the end of the run."""

from pathlib import Path

import pytest
import torch

from celeris.errors import CelerisError
from celeris.tasks.run_directory import open_run
from celeris.tasks.whole import is_whole, newest_whole
from tests.tasks.conftest import Command, Workplace


def save(file: Path, step: int) -> None:
    torch.save({"global_step": step, "weights": torch.randn(1000)}, file)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_half_a_file_an_empty_one_and_one_whose_end_was_never_written_are_not_whole(tmp_path: Path) -> None:
    file = tmp_path / "last.ckpt"
    save(file, 3)
    content = file.read_bytes()
    assert is_whole(file)
    for damaged in (content[:-1], content[: len(content) // 2], b"", content[:-100] + bytes(100)):
        file.write_bytes(damaged)
        assert not is_whole(file)


def test_folders_of_shards_are_whole_with_their_index(tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").mkdir()
    assert not is_whole(tmp_path / "last.ckpt")
    (tmp_path / "last.ckpt" / ".metadata").touch()
    assert is_whole(tmp_path / "last.ckpt")


def test_the_newest_whole_one(tmp_path: Path) -> None:
    assert newest_whole(tmp_path) is None
    names = ["step_00000009.ckpt", "step_00000010.ckpt", "last.ckpt"]
    for step, name in enumerate(names):
        save(tmp_path / name, step)
    for better, damaged in zip(["step_00000010.ckpt", "step_00000009.ckpt"], ["last.ckpt", names[1]], strict=True):
        cut(tmp_path / damaged)
        assert newest_whole(tmp_path) == tmp_path / better
    cut(tmp_path / names[0])
    with pytest.raises(CelerisError, match="Each of the 3 checkpoints"):
        newest_whole(tmp_path)


def test_a_damaged_checkpoint_that_was_asked_for_is_refused_with_the_one_before(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "checkpoints"
    folder.mkdir(parents=True)
    for step in (1, 2):
        save(folder / f"step_{step:08d}.ckpt", step)
    cut(folder / "step_00000002.ckpt")
    with pytest.raises(CelerisError, match=r"step_00000002.ckpt is damaged .* ckpt=.*step_00000001.ckpt"):
        open_run(tmp_path, None, str(folder / "step_00000002.ckpt"))


def test_a_run_goes_on_from_the_one_before_and_says_so(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    words = [*workplace.training, f"paths.runs_dir={tmp_path}", "run_id=mine", "ckpt=last", "callbacks=none",
             "callbacks.checkpoints.every_n_steps=2"]  # fmt: skip
    assert command("train", *words).code == 0
    folder = tmp_path / "debug" / "mine" / "checkpoints"
    cut(folder / "last.ckpt")  # a link: step_00000004.ckpt is damaged with it
    again = command("train", *words)
    assert again.code == 0 and f"{folder / 'last.ckpt'} is damaged" in again.out, again
    assert f"continuing from {folder / 'step_00000002.ckpt'}" in again.out
    assert is_whole(folder / "last.ckpt") and torch.load(folder / "last.ckpt", weights_only=True)["global_step"] == 4
