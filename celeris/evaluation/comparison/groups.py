"""Reports of the same configuration, trained with several seeds, joined into one system of a comparison."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OWN = "celeris"
"""The system that the page is about: shown first, and compared with each other one."""
SETTINGS = {"step", "parameters", "seed", "trained_with_seed", "num_samples", "length", "num_inference_steps",
            "temperature", "stagger", "block_length", "top_p", "batch", "batch_size", "eta"}  # fmt: skip
"""Numbers of an entry that are choices, not figures."""
RUN = ("weight_hash", "step", "trained_with_seed", "seed", "parameters", "precision", "device")


@dataclass(frozen=True)
class Entry:
    """One finished report.

    Attributes:
        source: where it came from, in words.
        report: content of its report.json.
        training: what its run says about itself, as far as it is known: experiment, command, commit, tokens, settings
            (flat, without seeds and folders), cpu, cores, devices, versions.
    """

    source: str
    report: Mapping[str, Any]
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Mapping[str, Any]:
        return self.report["checkpoint"]

    @property
    def system(self) -> str:
        return str(self.checkpoint.get("system", "model"))

    def metric(self, name: str) -> Mapping[str, Any]:
        """The record of a metric; empty when it was not measured."""
        return self.report.get("metrics", {}).get(name) or {}

    @property
    def configuration(self) -> str:
        """Equal for runs that differ in nothing but their seed."""
        settings = self.training.get("settings")
        known = {"settings": settings} if settings else {"experiment": self.training.get("experiment")}
        parts = {"system": self.system, **{key: self.checkpoint.get(key) for key in ("parameters", "step")}, **known}
        return json.dumps(parts, sort_keys=True, default=str)


def group(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Name of a configuration → its runs (seeds), named by system, and by experiment and steps where that is needed."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.configuration, []).append(entry)
    members = list(groups.values())
    first = [runs[0] for runs in members]
    choices = (
        [run.system for run in first],
        [f"{run.system} ({run.training.get('experiment') or run.source})" for run in first],
        [f"{run.system} ({run.source})" for run in first],
    )
    counts = [[names.count(name) for name in names] for names in choices]
    names = [next((choices[k][i] for k in range(3) if counts[k][i] == 1), first[i].source) for i in range(len(first))]
    return dict(zip(names, members, strict=True))


def over_seeds(values: Iterable[float | None]) -> dict[str, Any] | None:
    """Mean and sample standard deviation (None for a single value); None when there are no values."""
    known = [float(value) for value in values if value is not None]
    if not known:
        return None
    sd = statistics.stdev(known) if len(known) > 1 else None
    return {"mean": statistics.fmean(known), "sd": sd, "n": len(known), "values": known}


def figures(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a quality entry that are measured, not chosen."""
    return {
        key: value
        for key, value in entry.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key not in SETTINGS
    }


def system_record(name: str, runs: Sequence[Entry]) -> dict[str, Any]:
    """What the record of a comparison says of one system, its speed left out."""
    head = runs[0]
    return {
        "name": name,
        "system": head.system,
        "part_of": None,
        "experiment": head.training.get("experiment"),
        "parameters": head.checkpoint.get("parameters"),
        "steps": head.checkpoint.get("step"),
        "tokens_trained": head.training.get("tokens"),
        "runs": [_run(run) for run in runs],
        "likelihood": _likelihood(runs),
        "settings": _settings(runs),
    }


def _run(run: Entry) -> dict[str, Any]:
    known = {key: value for key, value in run.training.items() if key != "settings"}
    return {"source": run.source, **{key: run.checkpoint.get(key) for key in RUN}, "training": known}


def _likelihood(runs: Sequence[Entry]) -> dict[str, Any] | None:
    records = [run.metric("likelihood") for run in runs if run.metric("likelihood")]
    if not records:
        return None
    results = {}
    for name, head in records[0]["results"].items():
        found = [record["results"][name] for record in records if name in record["results"]]
        errors = over_seeds(result.get("standard_error_bits_per_character") for result in found)
        results[name] = {
            "kind": head.get("kind"),
            "definition": head.get("definition"),
            "standard_error_bits_per_character": errors["mean"] if errors else None,
            **{key: over_seeds(r.get(key) for r in found) for key in ("nats_per_token", "bits_per_character")},
            "perplexity": over_seeds(result.get("perplexity") for result in found),
        }
    stands = records[0].get("headline") or next(iter(results))
    return {"headline": stands, "results": results}


def _settings(runs: Sequence[Entry]) -> list[dict[str, Any]]:
    """Every decoder that some run was sampled with, its figures over the seeds."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        for entry in run.metric("quality").get("settings", []):
            found.setdefault(entry["key"], []).append(entry)
    settings = []
    for key, entries in found.items():
        names = dict.fromkeys(name for entry in entries for name in figures(entry))
        spread = {name: over_seeds(figures(entry).get(name) for entry in entries) for name in names}
        flags = dict.fromkeys(flag for entry in entries for flag in entry.get("flags", []))
        head = entries[0]
        choice = {name: head[name] for name in ("decoder", "length", "num_samples", "num_inference_steps",
                                                 "temperature") if name in head}  # fmt: skip
        settings.append({"key": key, "label": head["label"], **choice, "figures": spread, "flags": list(flags)})
    return settings
