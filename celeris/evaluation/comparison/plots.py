"""Pictures of a comparison: quality against speed, and perplexity against entropy."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from celeris.evaluation.comparison.points import (
    KNOWN,
    MAUVE,
    MERITS,
    SCORER,
    Merit,
    batches,
    counting,
    degenerate,
    merit_of,
    pareto_front,
)
from celeris.evaluation.matched_entropy import families
from celeris.evaluation.plots import BESIDE, MARKERS


class Look:
    """A colour for each system, a marker for each temperature: names that add up in a legend instead of multiplying."""

    def __init__(self, systems: Sequence[Mapping[str, Any]]):
        self.systems = [system["name"] for system in systems]
        self.temperatures = sorted({s["temperature"] for system in systems for s in system["settings"]
                                    if s.get("temperature") is not None})  # fmt: skip

    def style(self, system: str, temperature: float | None) -> dict[str, Any]:
        place = self.temperatures.index(temperature) if temperature is not None else 0
        return {"color": f"C{self.systems.index(system) % 10}", "marker": MARKERS[place % len(MARKERS)]}

    def legend(self, axes: Any, systems: Iterable[str], hollow: bool = False) -> None:
        """Beside the axes, below what was named there: systems, temperatures, what hollow means."""
        shown = set(systems)
        for i, name in enumerate(self.systems):
            if name in shown:
                axes.plot([], [], color=f"C{i % 10}", linewidth=3, label=name)
        for k, temperature in enumerate(self.temperatures):
            style = {"color": "grey", "marker": MARKERS[k % len(MARKERS)], "markersize": 5, "linestyle": "none"}
            axes.plot([], [], label=f"T {temperature:g}", **style)
        if hollow:
            style = {"color": "grey", "marker": "o", "markersize": 5, "linestyle": "none", "markerfacecolor": "none"}
            axes.plot([], [], label="flagged", **style)
        axes.legend(fontsize=8, frameon=False, **BESIDE)


def pictures(record: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Draw what the record has figures for; file name → what it shows."""
    drawn = {}
    look = Look(record["systems"])
    for batch in batches(record["points"]):
        panels = _panels(record["points"], batch)
        if panels:
            name = f"pareto_batch_{batch}.png"
            _save(folder / name, [lambda axes, m=merit, b=batch: pareto(axes, record, m, b, look) for merit in panels])
            drawn[name] = f"Quality against speed, batch {batch}"
    frontier = [("gen_ppl", "perplexity under the scorer"), ("scorer_bits_per_character", SCORER.words)]
    panels_of = [pair for pair in frontier if _have(record, pair[0]) and _have(record, "entropy")]
    if panels_of:
        draws = [lambda axes, k=key, w=words: perplexity_entropy(axes, record, k, w, look) for key, words in panels_of]
        _save(folder / "frontier.png", draws)
        drawn["frontier.png"] = "Perplexity against entropy"
    return drawn


def _panels(points: Sequence[Mapping[str, Any]], batch: int) -> list[Merit]:
    """Known words, and MAUVE where it was measured, else the scorer's bits per character."""
    have = [merit for merit in MERITS if any(p["batch"] == batch and p[merit.key] is not None for p in points)]
    return [merit for merit in (KNOWN, MAUVE if MAUVE in have else SCORER) if merit in have]


def _have(record: Mapping[str, Any], key: str) -> bool:
    return any(setting["figures"].get(key) for system in record["systems"] for setting in system["settings"])


def pareto(axes: Any, record: Mapping[str, Any], merit: Merit, batch: int, look: Look) -> None:
    """One figure over tokens/s; hollow: flagged texts, which are not on the front; bars: sd over seeds and calls."""
    shown = [p for p in record["points"] if p["batch"] == batch and p[merit.key]]
    for p in shown:
        style = look.style(p["system"], p["temperature"])
        x, y = p["tokens_per_second"], p[merit.key]["mean"]
        axes.errorbar(
            [x], [y], xerr=[p["tokens_per_second_sd"] or 0.0], yerr=[p[merit.key]["sd"] or 0.0],
            markersize=5, linewidth=0, elinewidth=0.8, markerfacecolor="none" if p["degenerate"] else style["color"],
            **style,
        )  # fmt: skip
        _note(axes, p["steps"], (x, y), style["color"])
    for system in look.systems:
        for temperature in look.temperatures:
            line = sorted((p["tokens_per_second"], p[merit.key]["mean"]) for p in shown
                          if (p["system"], p["temperature"]) == (system, temperature))  # fmt: skip
            colour = look.style(system, temperature)["color"]
            axes.plot(*zip(*line, strict=True) if line else ([], []), color=colour, linewidth=0.5, alpha=0.5)
    able = counting(record["points"], merit, batch)
    front = [able[i] for i in pareto_front([(p["tokens_per_second"], merit_of(p, merit)) for p in able])]
    x, y = [p["tokens_per_second"] for p in front], [p[merit.key]["mean"] for p in front]
    # from the fastest down: what is reached at a speed holds until the next better point is slow enough
    axes.step(x, y, where="post", color="black", linewidth=0.8, label="front", zorder=0)
    real = (record.get("real_text") or {}).get(merit.key)
    if real is not None:
        axes.axhline(real, color="black", linestyle=":", linewidth=0.8, label="real text")
    axes.set_xscale("log")
    axes.margins(x=0.1, y=0.08)
    _ticks(axes.xaxis, [p["tokens_per_second"] for p in shown])
    if merit is KNOWN:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel(f"output tokens/s, batch {batch}")
    axes.set_ylabel(f"{merit.words} ({'more' if merit.more else 'less'} is better)")
    look.legend(axes, (p["system"] for p in shown), any(p["degenerate"] for p in shown))


def perplexity_entropy(axes: Any, record: Mapping[str, Any], key: str, words: str, look: Look) -> None:
    """One line a system and step count, through its temperatures by entropy; a star: real text."""
    shown = []
    for system in record["systems"]:
        able = [s for s in system["settings"] if s["figures"].get(key) and s["figures"].get("entropy")]
        for members in families(able).values():
            some = sorted(members, key=lambda s: s["figures"]["entropy"]["mean"])
            places = [tuple(s["figures"][k]["mean"] for k in ("entropy", key)) for s in some]
            colour = look.style(system["name"], None)["color"]
            axes.plot(*zip(*places, strict=True), color=colour, linewidth=0.7)
            for setting, place in zip(some, places, strict=True):
                sds = [setting["figures"][k]["sd"] or 0.0 for k in ("entropy", key)]
                axes.errorbar(*([v] for v in place), xerr=sds[:1], yerr=sds[1:], markersize=5, elinewidth=0.6,
                              markerfacecolor="none" if degenerate(setting["flags"]) else colour,
                              **look.style(system["name"], setting.get("temperature")))  # fmt: skip
                shown.append((system["name"], degenerate(setting["flags"]), place[1]))
            _note(axes, some[-1].get("num_inference_steps"), places[-1], colour)
    real = record.get("real_text") or {}
    if real.get(key) is not None and real.get("entropy") is not None:
        style = {"marker": "*", "s": 110, "color": "black", "label": "real text", "zorder": 3}
        axes.scatter([real["entropy"]], [real[key]], **style)
        shown.append(("", False, real[key]))
    if key == "gen_ppl":
        axes.set_yscale("log")
        _ticks(axes.yaxis, [value for _, _, value in shown])
    axes.margins(x=0.08, y=0.08)
    axes.set_xlabel("token entropy of a row (nats)")
    axes.set_ylabel(words)
    look.legend(axes, (name for name, _, _ in shown), any(flagged for _, flagged, _ in shown))


def _note(axes: Any, steps: int | None, place: tuple[float, ...], colour: str) -> None:
    """The step count, beside its point."""
    if steps is not None:
        axes.annotate(str(steps), place, fontsize=7, color=colour, xytext=(4, 3), textcoords="offset points")


def _ticks(axis: Any, values: Sequence[float]) -> None:
    """Round numbers, written out, on a logarithmic axis: more of them where it spans less."""
    from matplotlib.ticker import LogLocator, NullFormatter

    span = math.log10(max(values) / min(values)) if values and min(values) > 0 else 1.0
    steps = (1, 10) if span > 4 else (1, 3) if span > 2 else (1, 2, 5) if span > 0.8 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8)
    axis.set_major_locator(LogLocator(base=10, subs=steps, numticks=20))
    axis.set_major_formatter(lambda value, _: f"{value:,.6g}" if value < 1000 else f"{value:,.0f}")
    axis.set_minor_formatter(NullFormatter())


def _save(path: Path, draws: Sequence[Any]) -> None:
    """Panels side by side in a PNG file, without a display and without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2 * len(draws), 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    for i, draw in enumerate(draws):
        axes = figure.add_subplot(1, len(draws), i + 1)
        draw(axes)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
