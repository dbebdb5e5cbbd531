"""evaluate.py history=… and watch=…: a line a checkpoint version, and a check that notices damaged weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from celeris.config.overrides import quoted
from celeris.errors import CelerisError
from celeris.evaluation.scorer import SmolLM2
from celeris.language_model import LanguageModel
from tests.tasks.conftest import Command, Workplace

QUALITY = [
    "metrics=[quality]", "evaluation.quality.num_samples=12", "evaluation.quality.num_inference_steps=[2]",
    "evaluation.quality.autoregressive_temperatures=[]",
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_scorer(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: SmolLM2) -> None:
        raise CelerisError("The scorer is not here; install it.")

    monkeypatch.setattr(SmolLM2, "_load", missing)


def damage(run: Path, folder: Path) -> Path:
    """The same export with noise on the output bias, so large that one token drowns the others."""
    shutil.copytree(run / "export", folder / "export")
    model = LanguageModel.from_pretrained(folder / "export")
    with torch.no_grad():
        bias = model.rounding.project.bias
        bias.add_(60 * torch.randn(bias.shape, generator=torch.Generator().manual_seed(0)))
    model.save_pretrained(folder / "export")
    return folder


def cells(out: str, figure: str) -> list[str]:
    """Stored, now, better, z and verdict of a figure in the last table that has it."""
    lines = [line for line in out.splitlines() if line.startswith("quality ")]
    line = [line for line in lines if f": {figure} " in line][-1]
    return [cell.strip() for cell in line.split(f": {figure} ")[1].split("  ") if cell.strip()]


def test_a_history_and_its_watch(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    run = f"checkpoint={quoted(str(workplace.run))}"
    keep = [*workplace.words, *QUALITY, "logger=none", f"history={file}", f"output={tmp_path / 'report'}", run]
    first = command("evaluate", *keep)
    assert first.code == 0 and "line 1 added" in first.out, first
    line = json.loads(file.read_text())
    assert {
        "weight_hash",
        "date",
        "step",
        "system",
        "experiment",
        "celeris",
        "commit",
        "data",
        "seed",
        "scoring",
    } <= set(line)
    assert line["experiment"] == "debug" and line["date"].endswith("+00:00") and line["data"]["fingerprint"]
    again = command("evaluate", *keep)
    assert "nothing added: these weights were measured in the same way before" in again.out
    assert len(file.read_text().splitlines()) == 1

    kept = sorted((workplace.run / "evaluation").rglob("*"))
    watch = [*workplace.words, "logger=none", f"watch={file}"]
    same = command("evaluate", *watch, run)
    assert same.code == 0 and "0 of 2 figures became worse" in same.out, same
    for figure in ("entropy_ratio", "known_word_share"):
        stored, now, _, z, verdict = cells(same.out, figure)
        assert stored == now and z == "+0.0" and verdict == "within noise"
    assert sorted((workplace.run / "evaluation").rglob("*")) == kept  # nothing read from there, nothing written

    other = command("evaluate", *watch, run, "seed=1234")
    assert other.code == 0 and cells(other.out, "entropy_ratio")[4] in ("within noise", "better")
    assert cells(other.out, "entropy_ratio")[0] != cells(other.out, "entropy_ratio")[1]

    damaged = damage(workplace.run, tmp_path / "runs" / "damaged")
    found = command("evaluate", *watch, f"checkpoint={damaged}")
    assert found.code == 3 and "REGRESSION quality celeris/steps_2/eta_1/t0.7: entropy_ratio" in found.out, found
    assert cells(found.out, "entropy_ratio")[4] == "WORSE" and not found.err.startswith("error")

    worse = command("evaluate", *keep[:-1], f"checkpoint={damaged}")
    assert worse.code == 0 and "line 2 added" in worse.out and "REGRESSION" in worse.out
    newest = command("evaluate", *watch, run)  # the newest line is that of the damaged weights
    assert newest.code == 0 and cells(newest.out, "entropy_ratio")[4] == "better"


def test_nothing_stored_is_a_mistake(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    words = [*workplace.words, "logger=none", f"checkpoint={quoted(str(workplace.run))}"]
    assert "There is no history at" in command("evaluate", *words, f"watch={tmp_path / 'none.jsonl'}").sentence
    file = tmp_path / "history.jsonl"
    file.write_text('{"broken\n')
    result = command("evaluate", *words, f"watch={file}")
    assert "no text quality of a celeris model among its 0 lines" in result.sentence and "Line 1 of" in result.sentence
