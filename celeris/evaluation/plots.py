"""Functions that draw report figures on a matplotlib Axes they are given."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from celeris.evaluation.matched_entropy import families

Draw = Callable[[Any], None]

MARKERS = "osD^vPX"
BESIDE = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}  # of the axes, where no point lies


def writer(setting: Mapping[str, Any]) -> str:
    """System, decoder and solver of a quality setting, in words: what has a colour of its own."""
    if setting.get("decoder") == "autoregressive":
        return f"{setting['system']}, next token"
    return ", ".join(str(setting[key]) for key in ("system", "solver_name") if setting.get(key))


class _Look:
    """A colour for each writer, a marker for each temperature, over all settings of a plot."""

    def __init__(self, settings: Sequence[Mapping[str, Any]]):
        self.writers = list(dict.fromkeys(map(writer, settings)))
        self.temperatures = sorted({float(setting["temperature"]) for setting in settings})

    def color(self, setting: Mapping[str, Any]) -> str:
        return f"C{self.writers.index(writer(setting)) % 10}"

    def marker(self, setting: Mapping[str, Any]) -> str:
        return MARKERS[self.temperatures.index(float(setting["temperature"])) % len(MARKERS)]

    def legend(self, axes: Any) -> None:
        """Colours and markers apart, so that their names add up instead of multiplying."""
        for i, name in enumerate(self.writers):
            axes.plot([], [], color=f"C{i % 10}", label=name)
        for k, temperature in enumerate(self.temperatures):
            style = {"color": "grey", "marker": MARKERS[k % len(MARKERS)], "markersize": 4, "linestyle": "none"}
            axes.plot([], [], label=f"T {temperature:g}", **style)
        axes.legend(fontsize=6, **BESIDE)


def quality_by_steps(record: dict[str, Any]) -> Draw:
    """Entropy and known words, as shares of real text's, over forward passes a token."""

    def draw(axes: Any) -> None:
        real = record["real_text"]
        settings = [s for s in record["settings"] if s["tokens_per_forward"]]
        look = _Look(settings)
        groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
        for setting in settings:
            groups.setdefault((writer(setting), setting["temperature"]), []).append(setting)
        for group in groups.values():
            group.sort(key=lambda s: -s["tokens_per_forward"])
            style = {"color": look.color(group[0]), "marker": look.marker(group[0]), "markersize": 4}
            passes = [1 / s["tokens_per_forward"] for s in group]
            axes.plot(passes, [s["entropy_ratio"] for s in group], **style)
            if real["known_word_share"]:
                shares = [(s["known_word_share"] or 0.0) / real["known_word_share"] for s in group]
                axes.plot(passes, shares, "--", **style)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("forward passes a token")
        axes.set_ylabel("relative to real text: entropy (solid), known words (dashed)", fontsize=8)
        look.legend(axes)

    return draw


def quality_frontier(record: dict[str, Any]) -> Draw:
    """Generative perplexity against entropy, real text a star: only the two together mean anything.

    One curve a decoder through its temperatures, with its steps written at its hottest point.
    """

    def draw(axes: Any) -> None:
        settings = [s for s in record["settings"] if s["gen_ppl"] is not None]
        look = _Look(settings)
        for group in families(settings).values():
            group = sorted(group, key=lambda s: s["temperature"])
            x, y = ([s[key] for s in group] for key in ("entropy", "gen_ppl"))
            axes.plot(x, y, color=look.color(group[0]), linewidth=0.7)
            for setting, *place in zip(group, x, y, strict=True):
                axes.plot(*place, color=look.color(setting), marker=look.marker(setting), markersize=4)
            if group[-1].get("num_inference_steps"):
                steps, offset = str(group[-1]["num_inference_steps"]), {"xytext": (3, 3), "textcoords": "offset points"}
                axes.annotate(steps, (x[-1], y[-1]), fontsize=6, **offset)
        look.legend(axes)
        real = record["real_text"]
        if real["gen_ppl"] is not None:
            axes.scatter([real["entropy"]], [real["gen_ppl"]], marker="*", s=120, color="black", label="real text")
            axes.legend(fontsize=6, **BESIDE)
        axes.set_yscale("log")
        axes.set_xlabel("token entropy of a row (nats); numbers: steps")
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
