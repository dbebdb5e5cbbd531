"""Every command of the README runs, at a size for a test; every file it names is there."""

import json
import random
import re
import shlex
from pathlib import Path

import pytest

from celeris.config.overrides import quoted
from celeris.tasks.cli import main
from celeris.tasks.evaluate import evaluate
from celeris.tasks.prompts import parse_prompts
from celeris.tasks.sample import sample
from celeris.tasks.train import train

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", TEXT, flags=re.S)
COMMANDS = [shlex.split(line) for block in BLOCKS for line in block.splitlines()]
FILES = dict(re.findall(r"```(?:python|yaml)\n# (my/\S+)\n(.*?)```", TEXT, flags=re.S))
"""Example files: path -> text."""
PROMPTS = re.search(r"```json\n(.*?)```", TEXT, flags=re.S)[1].splitlines()
"""The forms of a prompt."""
TASKS = {"train.py": train, "sample.py": sample, "evaluate.py": evaluate}

SMALL = {
    "train.py": ["trainer.max_steps=2", "threads=1", "model=debug", "global_batch_size=2", "micro_batch_size=1"],
    "sample.py": ["num_inference_steps=2", "max_new_tokens=32", "num_samples=1"],
    "evaluate.py": [
        "evaluation.likelihood.rows=4",
        *(f"evaluation.quality.{word}" for word in ("num_inference_steps=[2]", "length=32", "num_samples=2")),
        *(
            f"evaluation.speed.{word}"
            for word in ("num_inference_steps=[2]", "length=32", "batch_sizes=[1]", "repeats=1")
        ),
        *(f"evaluation.infilling.{word}" for word in ("num_inference_steps=[2]", "num_samples=2")),
        *(f"evaluation.lengths.{word}" for word in ("num_inference_steps=[2]", "num_samples=2", "max_new_tokens=32")),
        *(
            f"evaluation.exact_match.{word}"
            for word in ("num_inference_steps=[2]", "num_samples=2", "guidance_scales=[]")
        ),
    ],
}
HERE = {  # what this machine has not: GPUs, the hub, W&B's servers; `experiment=base` at full size has its own test
    "experiment=base": ["trainer=default", "data=local_text", "length=64", "block_length=16", "logger=wandb_offline"],
    "data=huggingface": ["data=local_text"],
    "experiment=xl": ["trainer=default"],
}
TRAINED = ("experiment=compare/",)  # at their own size, which the comparison needs to be equal


def write_example_files(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """In the README's order: what is trained is sampled and evaluated by the lines after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CELERIS_RUN_ID", "")
    words = ("the", "state", "of", "union", "is", "strong", "people", "law")
    Path("corpus.txt").write_text(" ".join(random.Random(0).choices(words, k=10_000)))
    Path("prompts.txt").write_text("a=b\nHello, world\n")
    Path("texts.jsonl").write_text('{"text": "The state of the union is strong."}\n{"text": ""}\n', encoding="utf-8")
    Path("chat.jsonl").write_text("".join(line + "\n" for line in PROMPTS if "messages" in line))
    write_example_files(tmp_path)
    folders = [f"paths.runs_dir={quoted(str(tmp_path / 'runs'))}", f"paths.cache_dir={quoted(str(tmp_path / 'cache'))}"]
    ran = 0
    for program, *words in COMMANDS:
        if program != "python":
            continue
        script, *overrides = words
        for key, others in HERE.items():
            overrides += [*others, "path=corpus.txt"] if key in overrides else []
        small = [] if "estimate=true" in overrides else SMALL[script]
        if any(word.startswith(TRAINED) for word in overrides):
            small = [word for word in small if word != "model=debug"]
        if any(re.fullmatch(r"max_new_tokens=\d", word) for word in overrides):
            small = [word for word in small if not word.startswith("max_new_tokens=")]  # it is small already
        monkeypatch.delenv("CELERIS_RUN_ID")
        code = main(TASKS[script], [*overrides, *small, *folders])
        monkeypatch.setenv("CELERIS_RUN_ID", "")
        assert code == 0, (words, capfd.readouterr())
        ran += 1
    assert ran >= 12 and Path("out.jsonl").is_file()


def test_the_forms_of_a_prompt_are_read() -> None:
    entries = parse_prompts("\n".join(PROMPTS).encode(), "README.md", ".jsonl")
    assert [type(entry) for entry in entries] == [str, list, list] and entries[2] == json.loads(PROMPTS[2])["messages"]


def test_the_other_commands_name_what_is_there() -> None:
    for program, *words in COMMANDS:
        if program == "pip":
            assert all((ROOT / word).is_file() for word in words if word.endswith(".txt"))
        elif program == "make":
            assert f"\n{words[0]}:" in (ROOT / "Makefile").read_text()
        else:
            assert program == "python" and words[0] in TASKS


def test_the_files_it_names_are_there() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / target).exists(), target
    folders = {path for path in re.findall(r"`((?:celeris|configs|tests|docs|notebooks)/[\w/.]*)`", TEXT)}
    assert [path for path in folders if not (ROOT / path).exists()] == []


def test_the_two_commands_come_first() -> None:
    assert TEXT.index("make demo") < TEXT.index("make test") < TEXT.index("\n## ")
