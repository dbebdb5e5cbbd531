"""Functions that draw report figures on a matplotlib Axes they are given."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

Draw = Callable[[Any], None]

MARKERS = "osD^vPX"
BESIDE = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}  # of the axes, where no point lies


class _Line(NamedTuple):
    """Settings of one solver and temperature, cheapest first; a solver has a colour and a temperature a marker."""

    style: dict[str, Any]
    settings: list[dict[str, Any]]

    def figures(self, key: str) -> list[float]:
        return [setting[key] or 0.0 for setting in self.settings]


def _lines(settings: Sequence[dict[str, Any]]) -> list[_Line]:
    solvers, temperatures = (list(dict.fromkeys(s[key] for s in settings)) for key in ("solver_name", "temperature"))
    lines = []
    for (i, solver), (k, temperature) in product(enumerate(solvers), enumerate(temperatures)):
        group = [s for s in settings if (s["solver_name"], s["temperature"]) == (solver, temperature)]
        style = {"color": f"C{i % 10}", "marker": MARKERS[k % len(MARKERS)], "markersize": 4}
        style["label"] = f"{solver}, T {temperature:g}"
        lines.append(_Line(style, sorted(group, key=lambda s: s["nfe_per_block"])))
    return lines


def quality_by_steps(record: dict[str, Any]) -> Draw:
    """Entropy and known words, as shares of real text's, over denoiser calls; lines of each solver and temperature."""

    def draw(axes: Any) -> None:
        real = record["real_text"]
        for line in _lines(record["settings"]):
            calls = line.figures("nfe_per_block")
            axes.plot(calls, line.figures("entropy_ratio"), **line.style)
            if real["known_word_share"]:
                shares = [share / real["known_word_share"] for share in line.figures("known_word_share")]
                axes.plot(calls, shares, "--", **{**line.style, "label": None})
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        ticks = sorted({s["num_inference_steps"] for s in record["settings"]})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xlabel("denoiser calls a block")
        axes.set_ylabel("relative to real text: entropy (solid), known words (dashed)", fontsize=8)
        axes.legend(fontsize=6, **BESIDE)

    return draw


def quality_frontier(record: dict[str, Any]) -> Draw:
    """Generative perplexity against entropy, real text marked: only the two together mean anything.

    One line a solver and temperature, through its step counts, each point with its denoiser calls a block.
    """

    def draw(axes: Any) -> None:
        for line in _lines([s for s in record["settings"] if s["gen_ppl"] is not None]):
            x, y = line.figures("entropy"), line.figures("gen_ppl")
            axes.plot(x, y, linewidth=0.7, **line.style)
            for calls, *place in zip(line.figures("nfe_per_block"), x, y, strict=True):
                axes.annotate(str(calls), place, fontsize=6, xytext=(3, 3), textcoords="offset points")
        real = record["real_text"]
        if real["gen_ppl"] is not None:
            axes.scatter([real["entropy"]], [real["gen_ppl"]], marker="*", s=120, color="black", label="real text")
        if axes.has_data():
            axes.legend(fontsize=6, **BESIDE)
        axes.set_yscale("log")
        axes.set_xlabel("token entropy of a row (nats); numbers: denoiser calls a block")
        axes.set_ylabel(f"perplexity under {record['definitions']['scorer']}")

    return draw


def bars(names: Sequence[str], values: Sequence[float], label: str) -> Draw:
    """Horizontal bars with their values written beside them."""

    def draw(axes: Any) -> None:
        drawn = axes.barh(list(names), list(values))
        axes.bar_label(drawn, fmt="%.2f", padding=3)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_xlabel(label)

    return draw


def lines(x: Sequence[float], y: Sequence[float], x_label: str, y_label: str) -> Draw:
    """One line."""

    def draw(axes: Any) -> None:
        axes.plot(list(x), list(y))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)

    return draw


def save(draw: Draw, path: Path, title: str) -> None:
    """Draw into a PNG file without a display and without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw(axes)
    axes.set_title(title)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
