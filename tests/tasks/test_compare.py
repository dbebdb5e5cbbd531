"""evaluate.py compare=: from runs and from reports, kept figures reused, and mistakes in one sentence."""

import json
from pathlib import Path

import pytest

from celeris.config.overrides import quoted
from celeris.config.resolvers import ROOT
from celeris.evaluation.schema import COMPARISON, problem
from celeris.tasks.compare import shown
from tests.evaluation.comparisons import entry, setting, timed

from .conftest import Command, Workplace


@pytest.fixture
def reports(tmp_path: Path) -> dict[str, Path]:
    """Finished reports of two systems, as folders without weights."""
    found = {}
    for name, bits in (("celeris", 2.0), ("llama", 1.5)):
        settings = [setting(f"{name}/t1", 0.9)]
        made = entry(name, 1, bits, settings, kind="exact", speed=[timed(f"{name}/t1", 50.0 * bits, f"{name}1")])
        file = tmp_path / "runs" / name / "evaluation" / "report.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(made.report), encoding="utf-8")
        found[name] = file
    return found


def listed(*paths: Path) -> str:
    return "compare=[" + ",".join(quoted(str(path)) for path in paths) + "]"


def test_finished_reports_are_joined_without_a_model(
    command: Command, workplace: Workplace, reports: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    words = [listed(reports["celeris"], reports["llama"].parents[1]), f"output={quoted(str(output))}", "logger=none"]
    result = command("evaluate", *words, *workplace.words)
    assert result.code == 0, result.err
    assert "celeris against llama: loses: likelihood" in result.out and result.out.count("\n") < 8
    assert "comparison.html" in result.out
    record = json.loads((output / "comparison.json").read_text(encoding="utf-8"))
    assert problem(record, COMPARISON) is None
    assert [system["name"] for system in record["systems"]] == ["celeris", "llama"]
    assert record["systems"][0]["runs"][0]["source"] == "runs/celeris"
    assert record["made"]["command"][0] == "evaluate.py" and len(record["points"]) == 2
    assert {"comparison.md", "comparison.html", "pareto_batch_1.png"} <= {file.name for file in output.iterdir()}


def test_a_pattern_means_all_that_it_matches(
    command: Command, workplace: Workplace, reports: dict[str, Path], tmp_path: Path
) -> None:
    words = [listed(tmp_path / "runs" / "*"), f"output={quoted(str(tmp_path / 'out'))}", "logger=none"]
    assert command("evaluate", *words, *workplace.words).code == 0


def test_paths_in_the_project_are_shown_relative() -> None:
    words = ["train.py", f"paths.runs_dir={ROOT}/runs", f"root={ROOT}", f"other={ROOT}x/runs", f"deeper=/a{ROOT}/runs"]
    assert shown(words) == ["train.py", "paths.runs_dir=runs", "root=.", *words[3:]]


def test_mistakes_are_one_sentence(
    command: Command, workplace: Workplace, reports: dict[str, Path], tmp_path: Path
) -> None:
    def sentence(*paths: Path) -> str:
        return command("evaluate", listed(*paths), "logger=none", *workplace.words).sentence

    assert "at least two" in sentence(reports["celeris"])
    assert "does not exist" in sentence(reports["celeris"], tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "neither a run with an export nor a report" in sentence(tmp_path / "empty")
    broken = tmp_path / "report.json"
    broken.write_text('{"checkpoint": {}}', encoding="utf-8")
    assert "no report of a checkpoint" in sentence(reports["celeris"], broken)
    other = json.loads(reports["llama"].read_text(encoding="utf-8"))
    other["metrics"]["quality"]["scoring"]["window"] = 512
    broken.write_text(json.dumps(other), encoding="utf-8")
    assert "window: 256 and 512" in sentence(reports["celeris"], broken)


QUICK = ["evaluation=compare", "evaluation.likelihood.rows=2", "evaluation.likelihood.samples=1",
         "evaluation.likelihood.order=1", "evaluation.quality.num_samples=2", "evaluation.quality.score_characters=60",
         "evaluation.quality.num_inference_steps=[2]", "evaluation.quality.temperatures=[1.0]",
         "evaluation.quality.autoregressive_temperatures=[1.0]", "evaluation.speed.num_inference_steps=[2]",
         "evaluation.speed.batch_sizes=[1]", "evaluation.speed.repeats=2", "logger=none"]  # fmt: skip


@pytest.mark.slow
def test_two_seeds_and_another_width_from_training_to_the_page(command: Command, workplace: Workplace) -> None:
    trained = [*workplace.training, "logger=none"]
    assert command("train", *trained, "run_id=seed_1", "seed=1").code == 0
    assert command("train", *trained, "run_id=seed_2", "seed=2").code == 0
    assert command("train", *trained, "run_id=wide", "seed=1", "trainer.max_steps=6").code == 0
    runs = workplace.runs / "debug"
    words = [listed(runs / "seed_*", runs / "wide"), *QUICK, *workplace.words]
    result = command("evaluate", *words)
    assert result.code == 0, result.err
    output = workplace.runs / "compare" / "comparison"
    record = json.loads((output / "comparison.json").read_text(encoding="utf-8"))
    assert problem(record, COMPARISON) is None
    two, two_next, one, one_next = record["systems"]  # each with the second decoder of its weights
    assert [x["name"] for x in (two_next, one_next)] == [f"{x['name']}, next token" for x in (two, one)]
    assert [len(two["runs"]), len(one["runs"])] == [2, 1] and {two["system"], one["system"]} == {"celeris"}
    assert all(result["bits_per_character"]["n"] == 2 for result in two["likelihood"]["results"].values())
    assert two["settings"][0]["figures"]["entropy"]["n"] == 2 and one["speed"] and two["speed"]
    assert two["runs"][0]["training"]["command"][0] == "train.py" and two["tokens_trained"] > 0
    assert one["steps"] == 6
    page = (output / "comparison.html").read_text(encoding="utf-8")
    assert "train.py experiment=debug" in page
    again = command("evaluate", *words)
    assert again.code == 0 and again.out.count("results were kept from an earlier evaluation") == 3
