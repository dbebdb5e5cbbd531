"""Functions that draw report figures on a matplotlib Axes they are given."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Draw = Callable[[Any], None]


def _lines(settings: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Settings by solver and temperature, cheapest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for setting in settings:
        found.setdefault(f"{setting['solver_name']}, T {setting['temperature']:g}", []).append(setting)
    return [(name, sorted(group, key=lambda s: s["nfe_per_block"])) for name, group in found.items()]


def quality_by_steps(record: dict[str, Any]) -> Draw:
    """Entropy (solid) and known words (dashed), as shares of real text's, over what a block cost; one colour a solver
    and temperature."""

    def draw(axes: Any) -> None:
        real = record["real_text"]
        for name, settings in _lines(record["settings"]):
            calls = [s["nfe_per_block"] for s in settings]
            [line] = axes.plot(calls, [s["entropy_ratio"] for s in settings], "o-", label=f"token entropy, {name}")
            if real["known_word_share"]:
                shares = [(s["known_word_share"] or 0.0) / real["known_word_share"] for s in settings]
                axes.plot(calls, shares, "s--", color=line.get_color(), label=f"known words, {name}")
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        ticks = sorted({s["num_inference_steps"] for s in record["settings"]})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xlabel("denoiser calls a block")
        axes.set_ylabel("relative to real text of the same length")
        axes.legend(fontsize=6)

    return draw


def quality_frontier(record: dict[str, Any]) -> Draw:
    """Generative perplexity against entropy, real text marked: only the two together mean anything.

    One line a solver and temperature, through its step counts, each point with its denoiser calls a block.
    """

    def draw(axes: Any) -> None:
        for name, settings in _lines([s for s in record["settings"] if s["gen_ppl"] is not None]):
            places = [(s["entropy"], s["gen_ppl"]) for s in settings]
            axes.plot([x for x, _ in places], [y for _, y in places], "o-", linewidth=0.7, markersize=4, label=name)
            for s, place in zip(settings, places, strict=True):
                offset = {"xytext": (3, 3), "textcoords": "offset points"}
                axes.annotate(str(s["nfe_per_block"]), place, fontsize=6, **offset)
        real = record["real_text"]
        if real["gen_ppl"] is not None:
            axes.scatter([real["entropy"]], [real["gen_ppl"]], marker="*", s=120, color="black", label="real text")
        axes.legend(fontsize=6)
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
