"""Functions that draw report figures on a matplotlib Axes they are given."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Draw = Callable[[Any], None]


def quality_by_steps(record: dict[str, Any]) -> Draw:
    """Entropy and known words, as shares of real text's, over the number of steps; one line an eta."""

    def draw(axes: Any) -> None:
        real = record["real_text"]
        for eta in sorted({s["eta"] for s in record["settings"]}):
            settings = [s for s in record["settings"] if s["eta"] == eta]
            steps = [s["num_inference_steps"] for s in settings]
            axes.plot(steps, [s["entropy_ratio"] for s in settings], "o-", label=f"token entropy, eta {eta:g}")
            if real["known_word_share"]:
                shares = [(s["known_word_share"] or 0.0) / real["known_word_share"] for s in settings]
                axes.plot(steps, shares, "s--", label=f"known words, eta {eta:g}")
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        ticks = sorted({s["num_inference_steps"] for s in record["settings"]})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xlabel("denoising steps a block")
        axes.set_ylabel("relative to real text of the same length")
        axes.legend()

    return draw


def quality_frontier(record: dict[str, Any]) -> Draw:
    """Generative perplexity against entropy, real text marked: only the two together mean anything."""

    def draw(axes: Any) -> None:
        settings = [s for s in record["settings"] if s["gen_ppl"] is not None]
        axes.scatter([s["entropy"] for s in settings], [s["gen_ppl"] for s in settings])
        for s in settings:
            label = f"{s['num_inference_steps']} steps, eta {s['eta']:g}"
            axes.annotate(label, (s["entropy"], s["gen_ppl"]), fontsize=7, xytext=(3, 3), textcoords="offset points")
        real = record["real_text"]
        if real["gen_ppl"] is not None:
            axes.scatter([real["entropy"]], [real["gen_ppl"]], marker="*", s=120, color="black", label="real text")
            axes.legend()
        axes.set_yscale("log")
        axes.set_xlabel("token entropy of a row (nats)")
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
