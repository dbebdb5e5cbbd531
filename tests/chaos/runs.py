"""A run of train.py that takes seconds, and what must hold of it however often it was stopped."""

import json
import random
from pathlib import Path

import torch

from celeris.config.overrides import quoted
from celeris.config.resolvers import ROOT
from celeris.training.loggers import read_jsonl

PLUGIN = ROOT / "tests" / "chaos" / "plugin"
LENGTH, GLOBAL_BATCH = 32, 8


def corpus(folder: Path) -> Path:
    """A text of a few dozen different rows, so that a short run passes it several times."""
    draw = random.Random(0)
    file = folder / "corpus.txt"
    words = ["".join(draw.choices("abcdefgh", k=5)) for _ in range(400)]
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text("\n\n".join(" ".join(draw.choices(words, k=20)) for _ in range(14)), encoding="utf-8")
    return file


def words(place: Path, run: str, *more: str, steps: int = 20, ranks: int = 1, rows: int = 4) -> list[str]:
    """The command line of run `run` in `place`: online fit, per-token noise, given spans, self-conditioning.

    `rows` is the size of a micro-batch; the global batch is always the same.
    """
    trainer = ["trainer=ddp_cpu", f"trainer.devices={ranks}"] if ranks > 1 else ["trainer.accelerator=cpu"]
    return [
        "experiment=debug", "data=local_text", f"path={quoted(str(place / 'corpus.txt'))}", "ckpt=last",
        f"paths.runs_dir={quoted(str(place / 'runs'))}", f"paths.cache_dir={quoted(str(place / 'cache'))}",
        f"run_id={run}", "callbacks=none", "schedule=loss_cdf", "layout.p_given=0.5", "threads=1",
        f"trainer.max_steps={steps}", f"global_batch_size={GLOBAL_BATCH}", f"micro_batch_size={rows}",
        f"plugins=[{quoted(str(PLUGIN))}]", "+callbacks.seen._target_=chaos_points.Seen",
        f"+callbacks.seen.folder={quoted(str(folder(place, run)))}", *trainer, *more,
    ]  # fmt: skip


def folder(place: Path, run: str) -> Path:
    return place / "runs" / "debug" / run


def last(place: Path, run: str) -> dict:
    """The newest checkpoint; fails if it is not whole."""
    return load(folder(place, run) / "checkpoints" / "last.ckpt")


def load(checkpoint: Path) -> dict:
    return torch.load(checkpoint, weights_only=True)


def losses(place: Path, run: str) -> dict[int, float]:
    """train/loss by step, of the latest segment that has the step."""
    lines = read_jsonl(folder(place, run) / "metrics.jsonl")
    return {line["step"]: line["train/loss"] for line in lines if "train/loss" in line}


def distance(one: dict, two: dict, part: str = "") -> float:
    """Largest absolute difference between two trees of plain values; fails where their shapes differ."""
    if isinstance(one, dict):
        assert one.keys() == two.keys(), part
        return max((distance(one[key], two[key], f"{part}/{key}") for key in one), default=0.0)
    if isinstance(one, list | tuple):
        assert len(one) == len(two), part
        return max((distance(a, b, f"{part}/{k}") for k, (a, b) in enumerate(zip(one, two, strict=True))), default=0.0)
    if isinstance(one, torch.Tensor):
        assert one.shape == two.shape and one.dtype == two.dtype, part
        return float((one.double() - two.double()).abs().max()) if one.numel() else 0.0
    if isinstance(one, float):
        return abs(one - two)
    assert one == two, part
    return 0.0


def weights(checkpoint: dict) -> dict:
    """Everything that decides how the run goes on."""
    return {name: checkpoint[name] for name in ("state_dict", "celeris", "optimizer_states", "global_step")}


def samples(place: Path, run: str) -> dict[int, dict[int, list[tuple[int, str]]]]:
    """step → rank → (sample counter, row) that counted: those of the last start that took the step."""
    lines = [line for file in folder(place, run).glob("seen-*.jsonl") for line in read_jsonl(file)]
    found: dict[int, dict[int, list[tuple[int, str]]]] = {}
    for step in {line["step"] for line in lines}:
        final = max(line["start"] for line in lines if line["step"] == step)
        for line in lines:
            if line["step"] == step and line["start"] == final:
                own = found.setdefault(step, {}).setdefault(line["rank"], [])
                own += list(zip(line["ids"], line["rows"], strict=True))
    return found


def check_samples(place: Path, run: str, steps: int) -> None:
    """Each step has its own samples, no two ranks share one, and each pass over the text sees every row once."""
    seen = samples(place, run)
    assert sorted(seen)[:steps] == list(range(steps))
    rows: dict[int, str] = {}
    for step in range(steps):
        ids = [counter for rank in seen[step].values() for counter, _ in rank]
        assert sorted(ids) == list(range(step * GLOBAL_BATCH, (step + 1) * GLOBAL_BATCH)), (step, seen[step])
        rows |= {counter: row for rank in seen[step].values() for counter, row in rank}
    (manifest,) = (place / "cache" / "shards").glob("*/manifest.json")
    count = json.loads(manifest.read_text())["splits"]["train"]["manifest"]["rows"]
    passes = len(rows) // count
    assert passes >= 2 and len(set(rows.values())) == count  # rows of this text differ, so a row names itself
    for number in range(passes):
        assert len({rows[counter] for counter in range(number * count, (number + 1) * count)}) == count


def check_metrics(place: Path, run: str, steps: int, starts: int) -> None:
    """metrics.jsonl has every step, and marks the segment of each start that wrote any."""
    lines = [line for line in read_jsonl(folder(place, run) / "metrics.jsonl") if "train/loss" in line]
    by_segment: dict[int, list[int]] = {}
    for line in lines:
        by_segment.setdefault(line["segment"], []).append(line["step"])
    assert sorted({line["step"] for line in lines}) == list(range(1, steps + 1))
    assert all(numbers == list(range(numbers[0], numbers[-1] + 1)) for numbers in by_segment.values()), by_segment
    assert len(by_segment) <= starts and list(by_segment) == sorted(by_segment)
