"""train.py, sample.py and evaluate.py after each other, on a corpus of a few words."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from celeris.config.overrides import quoted
from tests.tasks.conftest import Command, Workplace
from tests.tasks.strings import STRINGS


def records(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_run_holds_what_it_takes_to_repeat_it(workplace: Workplace) -> None:
    run = workplace.run
    assert {path.name for path in run.iterdir()} >= {
        "config.yaml", "environment.json", "metrics.jsonl", "checkpoints", "export"
    }  # fmt: skip
    assert {path.name for path in (run / "export").iterdir()} >= {"model.safetensors", "config.json", "tokenizer.json"}
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["paths"]["run_dir"] == str(run) and config["data"]["source"]["path"] == str(workplace.corpus)
    environment = json.loads((run / "environment.json").read_text())
    assert {"git", "packages", "cpu", "threads", "python"} <= set(environment)
    assert environment["packages"]["torch"] == torch.__version__.split("+")[0] or environment["packages"]["torch"]
    assert [path.name for path in (run / "checkpoints").iterdir() if "=" in path.name] == []
    torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    info = json.loads((run / "export" / "config.json").read_text())["info"]
    assert info["step"] == 4 and info["experiment"] == "debug" and info["data"]["train"]["documents"] > 0


def test_the_newest_export_is_taken_and_named(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    result = command("sample", *workplace.words, "max_new_tokens=8")
    assert result.code == 0, result
    assert f"checkpoint {workplace.run / 'export'}: step 4, " in result.out and " parameters, weights " in result.out
    assert "does not follow instructions" in result.out
    explicit = command("sample", *workplace.words, "max_new_tokens=8", f"checkpoint={quoted(str(workplace.run))}")
    assert explicit.out.splitlines()[:-1] == result.out.splitlines()[:-1]  # the last one has the time it took
    newer = tmp_path / "runs" / "debug" / "second"
    shutil.copytree(workplace.run / "export", newer / "export")
    (newer / "export" / "model.safetensors").touch()
    shutil.copytree(workplace.run / "export", tmp_path / "runs" / "debug" / "zzz" / "export")
    os.utime(tmp_path / "runs" / "debug" / "zzz" / "export" / "model.safetensors", (1, 1))
    assert str(newer) in command("sample", f"paths.runs_dir={tmp_path / 'runs'}", "max_new_tokens=8").out


def test_prompts_come_back_byte_for_byte_with_their_settings(
    command: Command, workplace: Workplace, tmp_path: Path
) -> None:
    prompts, output = tmp_path / "prompts.jsonl", tmp_path / "new folder" / "out.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in STRINGS))
    words = [
        f"prompt_file={prompts}",
        f"output={quoted(str(output))}",
        "num_samples=2",
        "max_new_tokens=8",
        "show=none",
    ]
    result = command("sample", *workplace.words, *words, "num_inference_steps=2", "batch_size=7", "eta=1", "seed=11")
    assert result.code == 0, result
    found = records(output)
    assert [record["prompt"] for record in found] == [text for text in STRINGS for _ in range(2)]
    assert [record["seed"] for record in found] == list(range(11, 11 + 48))
    assert all({"text", "finish_reason", "tokens", "nfe", "distinct_2", "longest_run"} <= set(r) for r in found)
    metadata = found[0]["metadata"]
    assert metadata["checkpoint"] == str(workplace.run / "export") and metadata["step"] == 4
    assert metadata["decoder"]["num_inference_steps"] == 2 and metadata["decoder"]["solver"]["eta"] == 1
    assert (metadata["precision"], metadata["seed"], metadata["device"]) == ("float32", 11, "cpu")
    assert len(metadata["weight_hash"]) == 12 and metadata["parameters"] > 10_000
    # Row k of a run is row 0 of a run with seed + k, however the rows were put into batches.
    alone = tmp_path / "alone.jsonl"
    (tmp_path / "one.jsonl").write_text(json.dumps({"prompt": STRINGS[8]}))
    words = [f"prompt_file={tmp_path / 'one.jsonl'}", f"output={alone}", "max_new_tokens=8", "num_inference_steps=2"]
    assert command("sample", *workplace.words, *words, "eta=1", "seed=27").code == 0
    assert records(alone)[0]["text"] == found[16]["text"]


def test_the_trajectory_ends_in_the_text(command: Command, workplace: Workplace) -> None:
    words = ["prompt=the ", "max_new_tokens=8", "num_inference_steps=3", "show=trajectory"]
    result = command("sample", *workplace.words, 'prompt="the "', *words[1:])
    steps = [line for line in result.out.splitlines() if " t=" in line]
    assert [line.split("t=")[1][:5] for line in steps] == ["1.000", "0.667", "0.333"]
    (done,) = (line.split("done: ")[1] for line in result.out.splitlines() if "done: " in line)
    assert done == "the " + steps[-1].split("|", 1)[1]


def test_both_decoders_write(command: Command, workplace: Workplace) -> None:
    result = command("sample", *workplace.words, "decoder=autoregressive", "max_new_tokens=8", "prompt=the law")
    assert result.code == 0 and "1 samples, 8 tokens" in result.out


def test_a_run_is_continued_in_its_own_folder(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    words = [*workplace.training, f"paths.runs_dir={tmp_path}", "run_id=mine"]
    first = command("train", *words, "ckpt=last")
    assert "no checkpoint there yet: starting from the beginning" in first.out
    second = command("train", *words, "ckpt=last", "trainer.max_steps=6")
    assert f"continuing from {tmp_path}/debug/mine/checkpoints/last.ckpt" in second.out
    assert "changed since the run was started: trainer.max_steps: 4 -> 6" in second.out
    file = tmp_path / "debug" / "mine" / "checkpoints" / "step_00000006.ckpt"
    third = command("train", *words[:-1], f"ckpt={file}", "trainer.max_steps=7")
    assert [path.name for path in (tmp_path / "debug").iterdir()] == ["mine"], third
    steps = [(line["segment"], line["step"]) for line in records(tmp_path / "debug" / "mine" / "metrics.jsonl")]
    assert [step for step in dict.fromkeys(steps)] == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (1, 6), (2, 7)]
    assert (tmp_path / "debug" / "mine" / "config-2.yaml").is_file()
    info = json.loads((tmp_path / "debug" / "mine" / "export" / "config.json").read_text())["info"]
    assert info["step"] == 7


def test_the_same_seed_gives_the_same_weights(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    result = command("train", *workplace.training, f"paths.runs_dir={tmp_path}", "run_id=again")
    assert result.code == 0, result
    one, two = (
        load_file(folder / "export" / "model.safetensors") for folder in (workplace.run, tmp_path / "debug/again")
    )
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def test_it_does_not_matter_where_it_is_called(
    command: Command, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace.corpus.parent)
    words = [*workplace.words, "experiment=debug", "data=local_text", "path=corpus.txt", f"paths.runs_dir={tmp_path}"]
    result = command("train", *words, "run_id=there")
    folders = [line.split()[1].rstrip(":") for line in result.out.splitlines() if line.startswith("run ")]
    assert folders == [str(tmp_path / "debug" / "there")] and Path(folders[0], "export").is_dir()
    one, two = (load_file(folder / "export" / "model.safetensors") for folder in (workplace.run, Path(folders[0])))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert sorted(path.name for path in workplace.corpus.parent.iterdir()) == ["cache", "corpus.txt", "runs"]
    monkeypatch.chdir(tmp_path)
    assert command("sample", "checkpoint=debug/there/export", "max_new_tokens=8").code == 0


def test_evaluation_reports_into_the_run(
    command: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = [
        "evaluation.speed.num_inference_steps=[2]",
        "evaluation.speed.batch_sizes=[2]",
        "evaluation.speed.repeats=1",
    ]
    words = [*workplace.words, "metrics=[likelihood,speed]", "logger=none", "evaluation.likelihood.rows=8", *speed]
    result = command("evaluate", *words)
    assert result.code == 0, result
    folder = workplace.run / "evaluation"
    assert {"report.json", "report.md"} <= {path.name for path in folder.iterdir()}
    assert str(folder / "report.md") in result.out and "bits/char" in result.out
    report = json.loads((folder / "report.json").read_text())
    assert set(report["metrics"]) == {"likelihood", "speed"}
    assert report["checkpoint"]["checkpoint"] == str(workplace.run / "export")
    again = command("evaluate", *words[:-3], "metrics=[likelihood]", f"output={quoted(str(folder / 'again'))}")
    assert again.code == 0, again
    repeated = json.loads((folder / "again" / "report.json").read_text())
    assert repeated["metrics"]["likelihood"] == report["metrics"]["likelihood"]


@pytest.mark.slow
def test_the_large_experiment_trains_samples_and_is_evaluated(
    command: Command, workplace: Workplace, tmp_path: Path
) -> None:
    """C17: `experiment=base` on local text, 130M parameters, three steps; then both scripts with its export."""
    small = ["length=64", "block_length=16", "global_batch_size=2", "micro_batch_size=1", "trainer.max_steps=3"]
    folders = [f"paths.runs_dir={tmp_path}", workplace.words[1]]
    text = ["data=local_text", f"path={quoted(str(workplace.corpus))}", "logger=none", "callbacks=none"]
    trained = command("train", "experiment=base", *text, *small, *folders)
    assert trained.code == 0 and "3 steps done" in trained.out, trained
    sampled = command("sample", *folders, "prompt=Fellow citizens", "num_inference_steps=2", "max_new_tokens=16")
    assert sampled.code == 0 and "step 3" in sampled.out, sampled
    few = ["evaluation.likelihood.rows=2", "evaluation.likelihood.samples=1", "metrics=[likelihood]", "logger=none"]
    assert command("evaluate", *folders, *few).code == 0
