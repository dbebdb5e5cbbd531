"""The README's schedule, objective and solver, from a folder outside the project: one file and one yaml each."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from celeris import build
from celeris.config.overrides import quoted
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from tests.tasks.conftest import Command, Workplace
from tests.test_readme import FILES, write_example_files

MODULES = ("bent", "repulsion", "cooling")


@pytest.fixture
def my(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the README; what loading it changes in this process is undone."""
    write_example_files(tmp_path)
    monkeypatch.setattr(build, "TRUSTED", {"celeris"})
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path / "my"


def forget() -> None:
    """As a new process: nothing trusted, nothing imported, the folder not on the path."""
    build.TRUSTED.intersection_update({"celeris"})
    sys.path[:] = [entry for entry in sys.path if not entry.endswith("my")]
    for name in MODULES:
        sys.modules.pop(name, None)


def test_each_is_one_file_and_one_yaml() -> None:
    assert sorted(FILES) == sorted(
        f"my/{name}"
        for name in ("bent.py", "schedule/bent.yaml", "repulsion.py", "objective/repulsion.yaml",
                     "cooling.py", "solver/cooling.yaml")
    )  # fmt: skip


@pytest.mark.parametrize("how", ["--config-dir", "hydra.searchpath"])
def test_train_sample_and_evaluate(
    command: Command, workplace: Workplace, my: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    place = ["--config-dir", str(my)] if how == "--config-dir" else [f"hydra.searchpath=[{quoted(f'file://{my}')}]"]
    trusted = f"plugins=[{quoted(str(my))}]"
    runs = f"paths.runs_dir={quoted(str(my.parent / 'runs'))}"
    chosen = ["schedule=bent", "objective=repulsion", "trainer.max_steps=2", "run_id=mine"]
    trained = command("train", *place, *workplace.training, trusted, *chosen, runs)
    assert trained.code == 0, trained
    run = my.parent / "runs" / "debug" / "mine"
    assert yaml.safe_load((run / "config.yaml").read_text())["plugins"] == [str(my)]
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any(any("repulsion" in key for key in line) for line in metrics)
    spec = json.loads((run / "export" / "config.json").read_text())["model"]
    assert spec["schedule"] == {"_target_": "bent.BentSchedule", "low": -6.0, "high": 9.0}

    for task, more, words in (
        ("sample", [*place, "solver=cooling"], ["max_new_tokens=8"]),
        ("evaluate", [], ["metrics=[likelihood]", "evaluation.likelihood.rows=4", "logger=none"]),
    ):
        forget()
        refused = command(task, *workplace.words, runs, *words)
        assert "The target 'bent.BentSchedule' is outside the package" in refused.sentence
        assert "plugins=[" in refused.sentence
        done = command(task, *more, *workplace.words, runs, *words, trusted)
        assert done.code == 0, done
    assert (run / "evaluation" / "report.json").is_file()

    forget()
    with pytest.raises(CelerisError, match="outside the package"):
        DiffusionLM.from_pretrained(run / "export")
    monkeypatch.syspath_prepend(my)
    build.trust("bent")
    assert DiffusionLM.from_pretrained(run / "export").num_parameters > 0


def test_training_without_plugins_says_what_is_missing(command: Command, workplace: Workplace, my: Path) -> None:
    sentence = command("train", "--config-dir", str(my), *workplace.training, "schedule=bent").sentence
    assert "bent.BentSchedule does not exist" in sentence and "plugins=[" in sentence


def test_a_module_by_its_name(
    command: Command, workplace: Workplace, my: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(my)
    words = [*workplace.words, "solver=cooling", "max_new_tokens=8"]
    assert command("sample", "--config-dir", str(my), *words, "plugins=[cooling]").code == 0
    assert sorted(build.TRUSTED) == ["celeris", "cooling"]


def test_plugins_that_cannot_be_loaded(command: Command, workplace: Workplace, my: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "random.py").touch()
    for value, expected in (
        ("nothing_here", "neither a folder nor a module"),
        ("some/where", "is no folder"),
        (str(tmp_path / "empty"), "holds no Python module"),
        (str(tmp_path / "taken"), "The module 'random'"),
    ):
        assert expected in command("sample", *workplace.words, f"plugins=[{quoted(value)}]").sentence


def test_what_a_trusted_module_imports_is_not_trusted(my: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`celeris.build.import_module` is in reach of the name, but it is not the package's own."""
    for target in ("celeris.build.import_module", "bent.torch.hub.load", "os.system", "getattr"):
        with pytest.raises(CelerisError, match="outside the package"):
            build.build({"_target_": target, "name": "this"})
