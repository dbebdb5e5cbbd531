"""A study as a user makes it: a multirun, an evaluation of each run, the table."""

import os
from pathlib import Path

import pytest

from celeris.tasks.ablations import main
from celeris.tasks.exports import find_export
from tests.tasks.conftest import Command, Workplace
from tests.tasks.test_scripts import script


def test_the_newest_export_may_be_of_an_experiment_in_a_folder(tmp_path: Path) -> None:
    for age, run in enumerate(("ablation/base/new", "tiny/old")):
        file = tmp_path / run / "export" / "model.safetensors"
        file.parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (100 - age, 100 - age))
    assert find_export(None, tmp_path) == tmp_path / "ablation" / "base" / "new" / "export"


@pytest.mark.slow
def test_a_study_from_sweep_to_table(
    command: Command, workplace: Workplace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = f"paths.runs_dir={tmp_path / 'runs'}"
    small = ["model=debug", "length=32", "trainer.max_steps=2", "trainer.precision=32-true"]
    sweep = ["experiment=ablation/base,ablation/objective_autoregressive,ablation/self_conditioning_0", "seed=1,2"]
    done = script("train", "-m", *workplace.training[1:], runs, *small, *sweep, cwd=tmp_path)
    assert done.returncode == 0, done
    folders = sorted((tmp_path / "runs" / "ablation").glob("*/*"))
    assert [folder.parent.name for folder in folders] == [
        name for name in ("base", "objective_autoregressive", "self_conditioning_0") for _ in "12"
    ]
    capfd.readouterr()
    assert main([str(tmp_path / "runs" / "ablation"), "--missing"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 6
    for folder in folders:
        words = ["metrics=[likelihood]", "logger=none", "evaluation.likelihood.rows=4"]
        assert command("evaluate", *workplace.words, runs, f"checkpoint={folder}", *words).code == 0
    page = tmp_path / "page.md"
    assert main([str(tmp_path / "runs" / "ablation"), str(page)]) == 0
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    assert [" ".join(row.split()).split(" | ")[1] for row in rows] == ["2"] * 4  # base stands in both studies
