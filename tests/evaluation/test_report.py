"""The report: complete, strict JSON, readable as text, and honest about what it left out."""

import json
import math
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from celeris.errors import CelerisError
from celeris.evaluation.quality import Quality
from celeris.evaluation.record import Sample, Section, Subject, Table
from celeris.evaluation.report import Report
from celeris.evaluation.run import check_names, evaluate
from celeris.evaluation.store import Store

from .fakes import PROSE, FakeData, FakeModel, FakeSampler, FakeScorer, MissingScorer, character_tokenizer

PNG = b"\x89PNG\r\n"


def run(metrics: dict, **arguments) -> Report:
    tokenizer = character_tokenizer()
    sampler = FakeSampler(tokenizer, lambda row, steps: PROSE[row % 50 :])
    data = FakeData(tokenizer, changed=arguments.pop("changed", []))
    model = FakeModel(arguments.pop("tokenizer", tokenizer), sampler)
    return evaluate(model, data, metrics, seed=5, **arguments)


def quality(steps: list[int], scorer: Any = None, **arguments: Any) -> Quality:
    return Quality(FakeScorer() if scorer is None else scorer, num_inference_steps=steps, **arguments)


def test_files(tmp_path: Path):
    metrics = {
        "quality": quality([4, 8], num_samples=3, length=48),
        "other": lambda subject: Section("Other", {"value": 1}, []),
    }
    report = run(metrics, output_dir=tmp_path / "evaluation", checkpoint="runs/tiny/1/export")
    record = json.loads((tmp_path / "evaluation" / "report.json").read_text(encoding="utf-8"))
    assert record["checkpoint"]["weight_hash"] == "0123456789ab"
    assert record["checkpoint"]["step"] == 123
    assert record["checkpoint"]["checkpoint"] == "runs/tiny/1/export"
    assert record["data"]["fingerprint"] == "f00d"
    assert list(record["metrics"]) == ["quality", "other"]
    assert record["metrics"]["quality"]["settings"][1]["num_inference_steps"] == 8
    assert record["environment"]["torch"]
    for stem, path in report.plots().items():
        assert path.read_bytes().startswith(PNG), stem
    assert set(report.plots()) == {"quality_by_steps", "quality_frontier"}
    markdown = (tmp_path / "evaluation" / "report.md").read_text(encoding="utf-8")
    for text in ("0123456789ab", "gen-PPL", "entropy", "real text", "one nat a character", "quality_frontier.png"):
        assert text in markdown


def test_perplexity_never_stands_without_entropy_and_never_ranks():
    report = run({"quality": quality([32, 4], num_samples=2, length=48)})
    table = report.sections["quality"].tables[0]
    assert table.columns.index("entropy") > table.columns.index("gen-PPL")
    assert [row[0] for row in table.rows] == ["32 steps", "4 steps", "real text"]  # as asked for, real text last


def test_markdown_columns_line_up_as_plain_text():
    report = run({"quality": quality([4, 16], num_samples=2, length=48)})
    rows = [line for line in report.to_markdown().splitlines() if line.startswith("|")]
    assert len(rows) == 15
    for table in (rows[:5], rows[5:10], rows[10:]):
        assert len({tuple(i for i, c in enumerate(line) if c == "|") for line in table}) == 1


def test_last_screen_fits_a_plain_terminal_and_says_where_the_report_is(tmp_path: Path):
    report = run({"quality": quality([4, 8], MissingScorer(), num_samples=3, length=48)}, output_dir=tmp_path)
    text = StringIO()
    report.print_summary(Console(file=text, width=80))
    shown = text.getvalue()
    assert all(len(line) <= 80 or line.startswith("report:") for line in shown.splitlines())
    assert f"report: {tmp_path / 'report.md'}" in shown
    assert PROSE[5:30] in shown  # a sample
    assert "real text" in shown and "dist-2" in shown and "tokens/s" in shown
    assert "Generative perplexity is left out." in shown


def test_text_is_never_read_as_markup(tmp_path: Path):
    text = "[bold]```\n| x | [/red] \x1b"
    section = Section("Odd", {"value": math.inf}, [Table("t", ["a|b"], [["c|d"]])], samples=[Sample("s", text)])
    report = Report({}, {}, {}, {"odd": section})
    report.save(tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["metrics"]["odd"]["value"] is None
    assert f"````text\n{text}\n````" in report.to_markdown()
    assert "| c\\|d |" in report.to_markdown()
    out = StringIO()
    report.print_summary(Console(file=out, width=80))
    assert "[bold]```" in out.getvalue() and "[/red]" in out.getvalue()


def test_same_seed_same_report():
    def once() -> dict:
        record = run({"quality": quality([4], num_samples=3, length=48)}).to_dict()
        for setting in record["metrics"]["quality"]["settings"]:
            del setting["seconds"], setting["tokens_per_second"]
        return record

    assert once() == once()


def test_what_was_kept_is_said(tmp_path: Path):
    """On the last screen and in both files: which figures are of now and which of an earlier evaluation."""
    for again in (False, True):
        report = run({"quality": quality([4], num_samples=2, length=48)}, store=Store(tmp_path / "kept"))
        screen = StringIO()
        report.print_summary(Console(file=screen, width=80))
        assert bool(report.reused) is again
        for text in (screen.getvalue(), report.to_markdown()):
            assert ("kept from an earlier evaluation: copied (2)" in text) is again
            assert ("samples (1), scores (2)" in " ".join(text.split())) is again
        assert ("samples of fake, 4 steps, T 0.7" in report.to_dict()["reused"]) is again


def test_other_data_is_refused_without_leave_and_named_with_it():
    metrics = {"quality": quality([4], num_samples=2, length=16)}
    with pytest.raises(CelerisError, match="packing was 'a' and is now 'b'.*allow_other_data"):
        run(metrics, changed=["packing was 'a' and is now 'b'."])
    report = run(metrics, changed=["packing was 'a' and is now 'b'."], allow_other_data=True)
    assert report.warnings == ["packing was 'a' and is now 'b'."]
    assert "packing was 'a'" in report.to_markdown()


def test_other_tokenizer_or_none_is_refused():
    with pytest.raises(CelerisError, match="another tokenizer"):
        run({}, tokenizer=character_tokenizer("abc"))
    with pytest.raises(CelerisError, match="no tokenizer"):
        run({}, tokenizer=None)


def test_metric_names():
    available = ["likelihood", "quality", "speed"]
    assert check_names(["speed", "quality", "speed"], available) == ["speed", "quality"]
    with pytest.raises(CelerisError, match="no metric 'likelyhood'; did you mean 'likelihood'"):
        check_names(["likelyhood"], available)
    with pytest.raises(CelerisError, match="generate_until.*likelihood, quality, speed"):
        check_names(["generate_until"], available)
    with pytest.raises(CelerisError, match="No metric"):
        check_names([], available)


def test_metrics_see_one_subject_in_evaluation_mode():
    seen: list[Subject] = []

    def metric(subject: Subject) -> Section:
        seen.append(subject)
        return Section("x", {}, [])

    run({"a": metric, "b": metric})
    assert seen[0] is seen[1] and not seen[0].model.training and seen[0].seed == 5
