"""Pictures of a comparison: quality against speed, and perplexity against entropy."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from celeris.evaluation.compare_points import (
    KNOWN,
    MAUVE,
    MERITS,
    SCORER,
    Merit,
    batches,
    counting,
    merit_of,
    pareto_front,
)
from celeris.evaluation.plots import MARKERS


def pictures(record: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Draw what the record has figures for; file name → what it shows."""
    drawn = {}
    colours = {system["name"]: f"C{i % 10}" for i, system in enumerate(record["systems"])}
    for batch in batches(record["points"]):
        panels = _panels(record["points"], batch)
        if panels:
            name = f"pareto_batch_{batch}.png"
            _save(
                folder / name, [lambda axes, m=merit, b=batch: pareto(axes, record, m, b, colours) for merit in panels]
            )
            drawn[name] = f"Quality against speed, batch {batch}"
    frontier = [("gen_ppl", "perplexity under the scorer"), ("scorer_bits_per_character", SCORER.words)]
    panels_of = [pair for pair in frontier if _have(record, pair[0]) and _have(record, "entropy")]
    if panels_of:
        draws = [
            lambda axes, k=key, w=words: perplexity_entropy(axes, record, k, w, colours) for key, words in panels_of
        ]
        _save(folder / "frontier.png", draws)
        drawn["frontier.png"] = "Perplexity against entropy"
    return drawn


def _panels(points: Sequence[Mapping[str, Any]], batch: int) -> list[Merit]:
    """Known words, and MAUVE where it was measured, else the scorer's bits per character."""
    have = [merit for merit in MERITS if any(p["batch"] == batch and p[merit.key] is not None for p in points)]
    return [merit for merit in (KNOWN, MAUVE if MAUVE in have else SCORER) if merit in have]


def _have(record: Mapping[str, Any], key: str) -> bool:
    return any(setting["figures"].get(key) for system in record["systems"] for setting in system["settings"])


def pareto(axes: Any, record: Mapping[str, Any], merit: Merit, batch: int, colours: Mapping[str, str]) -> None:
    """One figure over tokens/s; hollow: flagged texts, which are not on the front; bars: sd over seeds and calls."""
    for name, colour in colours.items():
        own = [p for p in record["points"] if p["system"] == name and p["batch"] == batch and p[merit.key]]
        for hollow in (False, True):
            some = [p for p in own if p["degenerate"] == hollow]
            if some:
                axes.errorbar(
                    [p["tokens_per_second"] for p in some],
                    [p[merit.key]["mean"] for p in some],
                    xerr=[p["tokens_per_second_sd"] or 0.0 for p in some],
                    yerr=[p[merit.key]["sd"] or 0.0 for p in some],
                    fmt="o", markersize=5, linewidth=0, elinewidth=0.8, color=colour,
                    markerfacecolor="none" if hollow else colour, label=f"{name}, flagged" if hollow else name,
                )  # fmt: skip
        for p in own:
            short = p["label"].removeprefix(p["system"]).removeprefix(p["key"].split("/")[0]).lstrip(", ")
            place = (p["tokens_per_second"], p[merit.key]["mean"])
            axes.annotate(short, place, fontsize=5, xytext=(3, 3), textcoords="offset points")
    able = counting(record["points"], merit, batch)
    front = [able[i] for i in pareto_front([(p["tokens_per_second"], merit_of(p, merit)) for p in able])]
    x, y = [p["tokens_per_second"] for p in front], [p[merit.key]["mean"] for p in front]
    # from the fastest down: what is reached at a speed holds until the next better point is slow enough
    axes.step(x, y, where="post", color="black", linewidth=0.8, label="front", zorder=0)
    real = (record.get("real_text") or {}).get(merit.key)
    if real is not None:
        axes.axhline(real, color="black", linestyle=":", linewidth=0.8, label="real text")
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel(f"output tokens/s, batch {batch}")
    axes.set_ylabel(f"{merit.words} ({'more' if merit.more else 'less'} is better)")
    axes.legend(fontsize=6)


def perplexity_entropy(axes: Any, record: Mapping[str, Any], key: str, words: str, colours: Mapping[str, str]) -> None:
    """One line a system and family of decoders, through its temperatures and steps by entropy; a star: real text."""
    for name, colour in colours.items():
        system = next(s for s in record["systems"] if s["name"] == name)
        able = [s for s in system["settings"] if s["figures"].get(key) and s["figures"].get("entropy")]
        for i, (family, members) in enumerate(_families(able).items()):
            some = sorted(members, key=lambda s: s["figures"]["entropy"]["mean"])
            x, y = ([s["figures"][k] for s in some] for k in ("entropy", key))
            axes.errorbar(
                [v["mean"] for v in x],
                [v["mean"] for v in y],
                xerr=[v["sd"] or 0.0 for v in x],
                yerr=[v["sd"] or 0.0 for v in y],
                color=colour, marker=MARKERS[i % len(MARKERS)], markersize=4, linewidth=0.7, elinewidth=0.6,
                label=f"{name}, {family}" if family else name,
            )  # fmt: skip
    real = record.get("real_text") or {}
    if real.get(key) is not None and real.get("entropy") is not None:
        axes.scatter([real["entropy"]], [real[key]], marker="*", s=120, color="black", label="real text", zorder=3)
    axes.set_yscale("log")
    axes.set_xlabel("token entropy of a row (nats)")
    axes.set_ylabel(words)
    axes.legend(fontsize=5)


def _families(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """What one line goes through: the temperatures of a step count; where each has only one, the step counts."""
    for left_out in (r"t\d[\d.]*", r"t\d[\d.]*|steps_\d+"):
        found: dict[str, list[Mapping[str, Any]]] = {}
        for setting in settings:
            kept = [part for part in setting["key"].split("/")[1:] if not re.fullmatch(left_out, part)]
            found.setdefault(" ".join(kept).replace("_", " "), []).append(setting)
        if any(len(members) > 1 for members in found.values()):
            break
    return found


def _save(path: Path, draws: Sequence[Any]) -> None:
    """Panels side by side in a PNG file, without a display and without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6 * len(draws), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    for i, draw in enumerate(draws):
        axes = figure.add_subplot(1, len(draws), i + 1)
        draw(axes)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
