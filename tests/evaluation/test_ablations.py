"""The ablation table on run directories made up here, whose figures are known."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from celeris.config.compose import CONFIGS
from celeris.evaluation.ablation_page import MARK, describe_variants
from celeris.evaluation.ablations import Spread, difference, spread
from celeris.tasks.ablations import main


def make_run(
    runs: Path,
    variant: str,
    seed: int,
    bound: float | None,
    *,
    name: str = "",
    next_token: float = 2.0,
    steps: int = 10,
    cosine: bool = False,
    term: str = "loss_diffusion",
    evaluated_at: int | None = None,
    rows: int = 64,
    quality: list[dict[str, Any]] | None = None,
) -> Path:
    folder = runs / "ablation" / variant / (name or f"20260101-00000{seed}")
    (folder / "evaluation").mkdir(parents=True)
    (folder / "export").mkdir()
    config = {
        "seed": seed, "run_id": None, "length": 100, "global_batch_size": 4, "logger": {"x": seed},
        "paths": {"run_dir": str(folder)}, "schedule": {"_target_": "Cosine" if cosine else "LossCDF"},
        "trainer": {"max_steps": 10, "max_time": None, "root_dir": str(folder)}, "module": {"seed": seed},
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    lines = [{"segment": 0, "step": k, "time": 100.0 + 2 * k, f"train/{term}": 1.0} for k in range(1, steps + 1)]
    lines.append({"segment": 0, "step": steps, "time": 500.0, "val/loss": 1.0})  # not training
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if bound is not None:
        bits = {"bound": bound, "bound, together": bound + 1, "next token": next_token}
        results = {key: {"bits_per_character": value, "tokens": 50, "characters": 100} for key, value in bits.items()}
        report: dict[str, Any] = {"likelihood": {"step": evaluated_at or steps, "rows": rows, "results": results}}
        if quality:
            report["quality"] = {"settings": quality}
        (folder / "evaluation" / "report.json").write_text(json.dumps({"metrics": report}))
    return folder


def page_of(tmp_path: Path) -> str:
    assert main([str(tmp_path / "runs" / "ablation"), str(tmp_path / "page.md")]) == 0
    return (tmp_path / "page.md").read_text()


def cells(page: str, start: str) -> list[str]:
    (line, *_) = [line for line in page.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_mean_deviation_and_difference() -> None:
    assert spread([]) is None and spread([2.0]) == Spread(2.0, None, 1)
    one, base = spread([1.0, 2.0, 3.0]), spread([5.0, 7.0])
    assert one == Spread(2.0, 1.0, 3)
    found = difference(one, base)
    assert found is not None and found.mean == -4.0
    assert found.sd == pytest.approx(math.sqrt((2 * 1.0 + 1 * 2.0) / 3))  # variances 1 and 2, degrees 2 and 1
    assert difference(one, None) is None


def test_a_row_has_its_seeds_time_size_and_difference(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for seed, bound in ((1, 2.0), (2, 2.2), (3, 2.4)):
        make_run(runs, "base", seed, bound)
        make_run(runs, "schedule_cosine", seed, bound + 0.5, cosine=True)
    page = page_of(tmp_path)
    # 10 steps of 2 s; 10 · 4 · 100 tokens of two characters each
    size = ["3", "10", "20", "0.01"]
    assert cells(page, "`base`")[1:] == [*size, "2.200 ± 0.200", "–", "3.200 ± 0.200", "2.000 ± 0.000", "–", "–"]
    assert cells(page, "`schedule_cosine`")[5:7] == ["2.700 ± 0.200", "+0.500 ± 0.200"]
    assert "* `schedule_cosine`: cosine" in page and "## Schedule" in page
    assert "experiment=ablation/schedule_cosine seed=1,2,3" in page


def test_the_twin_has_no_bound_and_is_what_the_others_are_held_against(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "base", 1, 2.0)
    make_run(tmp_path / "runs", "objective_autoregressive", 1, 9.0, next_token=1.6, term="loss_next_token")
    page = page_of(tmp_path)
    assert cells(page, "`objective_autoregressive`")[5:] == ["–", "–", "–", "1.600", "–", "–"]
    assert cells(page, "`base`")[-2:] == ["+0.400", "+1.400"]


def test_another_trunk_is_held_against_its_own_twin(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "objective_autoregressive", 1, 9.0, next_token=1.6, term="loss_next_token")
    make_run(tmp_path / "runs", "recipe_autoregressive", 1, 9.0, next_token=1.1, term="loss_next_token")
    make_run(tmp_path / "runs", "recipe_all", 1, 2.0)
    assert cells(page_of(tmp_path), "`recipe_all`")[-2] == "+0.900"


def test_runs_of_one_folder_with_other_settings_are_another_row(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / "runs", "base", seed, 2.0)
    make_run(tmp_path / "runs", "base", 1, 3.0, name="other", cosine=True)
    page = page_of(tmp_path)
    make_run(tmp_path / "runs", "embedding_16", 1, 2.1)
    page = page_of(tmp_path)
    assert cells(page, "`base`  ")[5] == "2.000 ± 0.000"
    assert cells(page, "`base`, schedule._target_=Cosine")[5] == "3.000"


def test_a_seed_run_twice_counts_once(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "embedding_16", 1, 2.0, name="a")
    make_run(tmp_path / "runs", "embedding_16", 1, 4.0, name="b")
    assert cells(page_of(tmp_path), "`embedding_16`")[1:6:4] == ["1", "4.000"]


@pytest.mark.parametrize("stale", [None, 5])
def test_what_is_not_evaluated_is_named_with_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stale: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No report, or the report of an earlier state of the run."""
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs", "embedding_16", 1, 2.0)
    folder = make_run(tmp_path / "runs", "embedding_16", 2, 2.0 if stale else None, evaluated_at=stale)
    page = page_of(tmp_path)
    assert cells(page, "`embedding_16`")[1] == "1 of 2"
    assert f"python evaluate.py checkpoint=runs/ablation/embedding_16/{folder.name} metrics=[likelihood]" in page
    capsys.readouterr()
    assert main(["runs/ablation", "--missing"]) == 0
    assert capsys.readouterr().out == f"runs/ablation/embedding_16/{folder.name}\n"


def test_a_run_that_stopped_early_is_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "base", 1, 2.0)
    make_run(tmp_path / "runs", "embedding_16", 1, 2.0, steps=4)
    page = page_of(tmp_path)
    assert "`runs/ablation/embedding_16/20260101-000001`: 4 of 10 steps" in page and "| `embedding_16`" not in page


def test_runs_measured_on_other_rows_are_called_out(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "embedding_16", 1, 2.0)
    make_run(tmp_path / "runs", "embedding_64", 1, 2.0, rows=8)
    assert "Not comparable" in page_of(tmp_path)


def test_quality_is_a_row_a_setting(tmp_path: Path) -> None:
    entry = {
        "solver": "DDIM(eta=1)",
        "num_inference_steps": 8,
        "temperature": 0.7,
        "entropy": 2.5,
        "entropy_ratio": 0.9,
    }
    for seed, ppl in ((1, 100.0), (2, 300.0)):
        make_run(
            tmp_path / "runs", "base", seed, 2.0, quality=[{**entry, "gen_ppl": ppl}, {**entry, "solver": "Heun()"}]
        )
    page = page_of(tmp_path)
    lines = [" ".join(line.split()) for line in page.splitlines()]
    assert "| `base` | DDIM(eta=1), 8 steps, T 0.7 | 200 ± 141 | – | – | 2.50 ± 0.00 | 0.90 ± 0.00 |" in lines
    assert "| `base` | Heun(), 8 steps, T 0.7 | – | – | – | 2.50 ± 0.00 | 0.90 ± 0.00 |" in lines
    assert cells(page, "`base`")[5] == "2.000 ± 0.000"  # a table without any variant yet


def test_text_above_the_mark_is_kept(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "base", 1, 2.0)
    (tmp_path / "page.md").write_text(f"# Mine\n\nWhat it means.\n\n{MARK}\nold\n")
    page = page_of(tmp_path)
    assert page.startswith(f"# Mine\n\nWhat it means.\n\n{MARK}\n") and "\nold\n" not in page


def test_a_page_without_the_mark_is_somebodys_text(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "base", 1, 2.0)
    (tmp_path / "page.md").write_text("# Mine\n\nWhat it means.\n")
    assert page_of(tmp_path).startswith(f"# Mine\n\nWhat it means.\n\n{MARK}\n")


def test_no_runs_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: There are no runs in")


def test_every_variant_says_its_study_and_what_it_changes() -> None:
    found = describe_variants(Path(CONFIGS) / "experiment" / "ablation")
    assert "base" in found and len(found) > 15
    assert [name for name, (study, text) in found.items() if not study or not text] == []
