"""The baselines through train.py, sample.py and evaluate.py, on a corpus of a few words."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from celeris.config.overrides import quoted
from celeris.tasks.cli import main
from celeris.tasks.evaluate import evaluate
from celeris.tasks.sample import sample
from celeris.tasks.train import train

SMALL = {
    "ar_tiny": ["model.width=16", "model.depth=1", "model.heads=2", "model.mlp_width=16"],
    "mdlm_tiny": ["model.width=16", "model.depth=1", "model.heads=2"],
}
SYSTEM = {"ar_tiny": ("llama", "exact"), "mdlm_tiny": ("masked", "bound")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("baselines")
    words = random.Random(0)
    lines = (" ".join(words.choices(("the", "law", "of", "peace", "nation"), k=30)) for _ in range(80))
    (folder / "corpus.txt").write_text("\n\n".join(lines), encoding="utf-8")
    return folder


def trained(place: Path, name: str, *words: str) -> Path:
    paths = [f"paths.runs_dir={quoted(str(place / 'runs'))}", f"paths.cache_dir={quoted(str(place / 'cache'))}"]
    text = ["data=local_text", f"path={quoted(str(place / 'corpus.txt'))}", "length=32"]
    budget = ["trainer.max_steps=4", "trainer.precision=32-true", "trainer.accelerator=cpu", "global_batch_size=4"]
    quiet = ["callbacks=none", "logger=none", "callbacks.checkpoints.every_n_steps=2"]
    every = [f"experiment=compare/{name}", *text, *budget, *SMALL[name], *quiet, *paths]
    assert main(train, [*every, *words]) == 0
    return place / "runs" / "compare" / name


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_baseline_is_trained_resumed_sampled_and_measured(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fresh(step: Callable[[], object]) -> None:
        monkeypatch.delenv("CELERIS_RUN_ID", raising=False)
        step()

    fresh(lambda: trained(place, name, "run_id=whole"))
    runs = place / "runs" / "compare" / name
    halfway = next((runs / "whole" / "checkpoints").glob("*2.ckpt"))
    fresh(lambda: trained(place, name, "run_id=resumed", f"ckpt={quoted(str(halfway))}"))
    whole, resumed = (load_file(runs / run / "export" / "model.safetensors") for run in ("whole", "resumed"))
    assert whole.keys() == resumed.keys() and all(bool((whole[key] == resumed[key]).all()) for key in whole)

    decoder, result = SYSTEM[name]
    output = place / f"{name}.jsonl"
    words = [f"checkpoint={quoted(str(runs / 'whole'))}", "device=cpu"]
    writing = [*words, "prompt=the", "max_new_tokens=6", f"output={quoted(str(output))}"]
    capsys.readouterr()
    assert main(sample, writing) == 2
    assert capsys.readouterr().err.strip().endswith(f"use decoder={decoder}.")
    assert main(sample, [*writing, f"decoder={decoder}", "num_samples=2"]) == 0
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(records) == 2 and all(record["tokens"] <= 6 for record in records)

    cache = f"paths.cache_dir={quoted(str(place / 'cache'))}"
    measuring = [*words, cache, "metrics=[likelihood]", "logger=none", "evaluation.likelihood.rows=8"]
    assert main(evaluate, measuring) == 0
    report = json.loads((runs / "whole" / "evaluation" / "report.json").read_text())
    likelihood = report["metrics"]["likelihood"]
    assert likelihood["headline"] == result
    assert likelihood["results"][result]["kind"] == {"exact": "exact", "bound": "upper bound"}[result]
    assert main(evaluate, measuring) == 0
    again = json.loads((runs / "whole" / "evaluation" / "report.json").read_text())["metrics"]["likelihood"]
    assert again["results"] == likelihood["results"]
    assert list((runs / "whole" / "evaluation" / "kept").glob("likelihood-*.json"))
