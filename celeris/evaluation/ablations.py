"""The ablation table: runs that differ in one thing, several seeds each, read from what they left behind.

A row is one configuration: runs that differ in nothing but seeds, names and folders. Runs of one folder whose settings
differ otherwise are separate rows, and the difference is named.
"""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from celeris.evaluation.estimates import BOUND, NEXT_TOKEN

SETTING_ASIDE = {"seed", "run_id", "ckpt", "threads", "paths", "plugins", "logger", "callbacks", "root_dir", "run_dir",
                 "cache_dir", "folder", "num_workers"}  # fmt: skip
"""Keys, at any depth, that do not make another configuration."""
QUALITY = ("gen_ppl", "scorer_bits_per_character", "known_word_share", "entropy", "entropy_ratio")
"""Figures of a quality report."""
NO_DIFFUSION = {"loss", "loss_next_token", "loss_schedule"}
"""Terms of an objective that leave the canvas untrained, when there are no others."""


@dataclass(frozen=True)
class AblationRun:
    """One finished run.

    Attributes:
        folder: of the run.
        variant: name of its experiment, without the group.
        settings: flat key → value of its configuration, without what `SETTING_ASIDE` names.
        seed, steps, seconds: of training; seconds between its first and last step, plus one step.
        planned: steps it was asked for; None where a time limit ended it.
        tokens: seen in training.
        bits: result of the likelihood → bits/character; empty without an evaluation.
        characters_per_token: of the held-out rows; None without an evaluation.
        rows: held-out rows measured.
        quality: settings measured, as in the report.
    """

    folder: Path
    variant: str
    settings: dict[str, Any]
    seed: int
    steps: int
    planned: int | None
    seconds: float
    tokens: int
    bits: dict[str, float] = field(default_factory=dict)
    characters_per_token: float | None = None
    rows: int | None = None
    quality: list[dict[str, Any]] = field(default_factory=list)


class Spread(NamedTuple):
    """Mean and sample standard deviation (None for a single value) of n seeds."""

    mean: float
    sd: float | None
    n: int

    def text(self, digits: int = 3) -> str:
        return f"{self.mean:.{digits}f}" + ("" if self.sd is None else f" ± {self.sd:.{digits}f}")


def spread(values: Sequence[float]) -> Spread | None:
    """Mean ± sd of `values`; None when there are none."""
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def difference(one: Spread | None, base: Spread | None) -> Spread | None:
    """one − base, with the pooled standard deviation of the two; None where either is missing."""
    if one is None or base is None:
        return None
    degrees = one.n + base.n - 2
    squares = sum((item.n - 1) * item.sd**2 for item in (one, base) if item.sd is not None)
    return Spread(one.mean - base.mean, math.sqrt(squares / degrees) if degrees else None, min(one.n, base.n))


def read_run(folder: Path, variant: str, config: Mapping[str, Any]) -> AblationRun | None:
    """What a run folder says about itself; None where not a single step was made.

    Args:
        folder: with metrics.jsonl and, once evaluated, evaluation/report.json.
        variant: name of its experiment.
        config: its composed configuration, plain and resolved.
    """
    lines = [json.loads(line) for line in _text(folder / "metrics.jsonl").splitlines() if line.endswith("}")]
    lines = [line for line in lines if any(key.startswith("train/") for key in line)]
    if not lines:
        return None
    steps = max(line["step"] for line in lines)
    terms = {key.removeprefix("train/") for line in lines for key in line if key.startswith("train/loss")}
    timed = config["trainer"].get("max_time") is not None
    run = AblationRun(
        folder=folder,
        variant=variant,
        settings=dict(flat_settings(config)),
        seed=config["seed"],
        steps=steps,
        planned=None if timed else config["trainer"]["max_steps"],
        seconds=_seconds(lines),
        tokens=steps * config["global_batch_size"] * config["length"],
    )
    report = json.loads(_text(folder / "evaluation" / "report.json") or "{}")
    likelihood = report.get("metrics", {}).get("likelihood")
    if likelihood is None or likelihood["step"] != steps:  # none yet, or of an earlier state of the run
        return run
    kept = likelihood["results"] if terms - NO_DIFFUSION else {NEXT_TOKEN: likelihood["results"][NEXT_TOKEN]}
    bits = {name: found["bits_per_character"] for name, found in kept.items()}
    size = likelihood["results"][BOUND]
    return replace(
        run,
        bits=bits,
        characters_per_token=size["characters"] / size["tokens"],
        rows=likelihood["rows"],
        quality=report["metrics"].get("quality", {}).get("settings", []),
    )


@dataclass(frozen=True)
class Row:
    """Runs of one configuration; `changed`: what makes it another one than most runs of its variant have."""

    variant: str
    changed: str
    runs: list[AblationRun]

    @property
    def evaluated(self) -> list[AblationRun]:
        return [run for run in self.runs if run.bits]

    def bits(self, name: str) -> Spread | None:
        return spread([run.bits[name] for run in self.evaluated if name in run.bits])

    def quality(self) -> Iterator[tuple[str, dict[str, Spread | None]]]:
        """Setting, and its `QUALITY` figures over the seeds."""
        found: dict[str, list[dict[str, Any]]] = {}
        for run in self.runs:
            for entry in run.quality:
                label = f"{entry['solver']}, {entry['num_inference_steps']} steps, T {entry['temperature']:g}"
                found.setdefault(label, []).append(entry)
        for label, entries in found.items():
            figures = {key: spread([entry[key] for entry in entries if entry.get(key) is not None]) for key in QUALITY}
            yield label, figures


def group_rows(runs: Sequence[AblationRun]) -> list[Row]:
    """One row a configuration, most runs of a variant first; a seed that was run twice counts once, the last run."""
    rows = []
    for variant in sorted({run.variant for run in runs}):
        groups: dict[str, dict[int, AblationRun]] = {}
        for run in sorted((run for run in runs if run.variant == variant), key=lambda run: (run.steps, run.folder)):
            groups.setdefault(json.dumps(run.settings, sort_keys=True), {})[run.seed] = run
        ordered = sorted(groups.values(), key=len, reverse=True)
        usual = next(iter(ordered[0].values())).settings
        for group in ordered:
            settings = next(iter(group.values())).settings
            rows.append(Row(variant, _changed(usual, settings), [group[seed] for seed in sorted(group)]))
    return rows


def _changed(usual: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    keys = [key for key in {**usual, **settings} if usual.get(key) != settings.get(key)]
    shown = [f"{key}={settings.get(key)}" for key in sorted(keys, key=lambda key: (key.count("."), key))[:3]]
    return ", ".join(shown) + (" …" if len(keys) > 3 else "")


def flat_settings(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Key with its path → value of a plain configuration, without what `SETTING_ASIDE` names."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key not in SETTING_ASIDE:
                yield from flat_settings(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def _seconds(lines: Sequence[Mapping[str, Any]]) -> float:
    """Of all segments (one a start of the run): from first to last step, and one step more for the first."""
    total = 0.0
    for segment in {line.get("segment", 0) for line in lines}:
        part = [line for line in lines if line.get("segment", 0) == segment]
        elapsed, steps = part[-1]["time"] - part[0]["time"], part[-1]["step"] - part[0]["step"]
        total += elapsed * (steps + 1) / steps if steps else 0.0
    return total


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
