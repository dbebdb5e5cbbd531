"""The figures of speed as tables of at most 120 columns, a plot and scalars."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from celeris.evaluation.plots import BESIDE, MARKERS, Draw
from celeris.evaluation.record import Table

Record = dict[str, Any]
Column = tuple[str, Callable[[Record], str]]


def tables(record: dict[str, Any]) -> list[Table]:
    """Tokens a second with their spread; latency; and what a token costs."""
    settings, environment = record["settings"], record["environment"]
    first, definition = settings[0], record["definition"]
    compared = list(dict.fromkeys(r["relative_to"] for r in settings if r["relative_to"]))
    same = {name: len({r[name] for r in settings}) == 1 for name in ("prompt_length", "length")}
    kinds = list(dict.fromkeys(f"{r['device']}, {r['precision']}" for r in settings))
    where, called = f"{' and '.join(kinds)}, {environment['threads']} threads", names(settings)
    lengths = [f"{first['length']} tokens a row"] if same["length"] else []
    if same["prompt_length"]:
        lengths.append(f"after {first['prompt_length']} tokens of prompt" if first["prompt_length"] else "from nothing")
    title = ", ".join([*lengths, where])
    who: list[Column] = [
        ("decoder", lambda r: called[r["label"], r["weight_hash"]]),
        ("batch", lambda r: str(r["batch"])),
    ]
    if not same["prompt_length"]:
        who.append(("prompt", lambda r: str(r["prompt_length"])))
    if not same["length"]:
        who.append(("out", lambda r: str(r["length"])))
    speed: list[Column] = [
        ("tokens/s", lambda r: number(r["output_tokens_per_second"])),
        ("min–max", lambda r: span(r, "output_tokens_per_second", "{:,.0f}")),
        ("no prefill", lambda r: number(r["output_tokens_per_second_without_prefill"])),
        ("ratio", lambda r: number(r["relative"], "{:.2f}")),
        ("its min–max", lambda r: span(r, "relative", "{:.2f}")),
        ("entropy", lambda r: number(r["entropy"], "{:.2f}")),
    ]
    latency: list[Column] = [
        ("first block s", lambda r: number(r["time_to_first_block_p50"], "{:.3f}")),
        ("p50 s", lambda r: number(r["latency_p50"], "{:.3f}")),
        ("p90 s", lambda r: number(r["latency_p90"], "{:.3f}")),
        ("p99 s", lambda r: number(r["latency_p99"], "{:.3f}")),
        ("denoiser calls", lambda r: number(r["denoiser_calls"], "{:,.0f}")),
        ("context passes", lambda r: number(r["context_passes"], "{:,.0f}")),
    ]
    cost: list[Column] = [
        ("passes", lambda r: number(r["forwards"], "{:,.0f}")),
        ("tokens/pass", lambda r: number(r["tokens_per_forward"], "{:.2f}")),
        ("MFLOP/token", lambda r: number(r["flops_per_token"], "{:,.2f}", 1e-6)),
        ("% of peak", lambda r: number(r["share_of_peak"], "{:.1f}", 100)),
        ("peak memory MB", lambda r: number(r["peak_memory_bytes"], "{:,.1f}", 1e-6)),
    ]
    peaks = ", ".join(f"{value / 1e9:,.1f} GFLOP/s ({kind})" for kind, value in record["peak"].items())
    counted = f"{first['repeats']} timed calls a line, one a round, decoders taking turns"
    said = f"Ratio to {' or '.join(compared)} in the same round: {definition['relative']}." if compared else ""
    said_of = ("output_tokens_per_second", "output_tokens_per_second_without_prefill", "output_tokens")
    notes = [*(f"{name.replace('_', ' ')}: {definition[name]}." for name in said_of), *([said] if said else [])]
    notes += [f"{counted}. Entropy: {definition['entropy']}; what the text is worth: see text quality."]
    parts = ("time_to_first_block", "latency", "forwards")
    late = [f"{name.replace('_', ' ')}: {definition[name]}." for name in parts]
    costs = [
        f"{name.replace('_', ' ')}: {definition[name]}." for name in ("tokens_per_forward", "flops", "peak_memory")
    ]
    return [
        _table(f"Speed: {title}", [*who, *speed], settings, notes),
        _table(f"Latency: {title}", [*who, *latency], settings, late),
        _table(f"Work: {title}", [*who, *cost], settings, [*costs, f"Large matrix product: {peaks}."]),
    ]


def busy(environment: dict[str, Any]) -> list[str]:
    """A warning where more processes wanted to run than there are cores."""
    loads = [environment[key][0] for key in ("load_average", "load_average_after") if environment[key]]
    if not loads or max(loads) <= environment["cores"] + 0.5:
        return []
    return [
        f"BUSY MACHINE: a load of {max(loads):.1f} on {environment['cores']} cores while speed was measured; tokens/s, "
        "latency and share of peak are those of this hour, and ratios within a round suffer less, not nothing."
    ]


def _table(title: str, columns: Sequence[Column], settings: Sequence[Record], notes: list[str]) -> Table:
    rows = [[show(record) for _, show in columns] for record in settings]
    return Table(title, [name for name, _ in columns], rows, notes)


def names(settings: Sequence[Record]) -> dict[tuple[str, str], str]:
    """(label, weights) → the label, with the weights' hash where models of one kind stand beside each other."""
    pairs = dict.fromkeys((r["label"], r["weight_hash"]) for r in settings)
    alike = Counter(label for label, _ in pairs)
    return {pair: pair[0] if alike[pair[0]] == 1 else f"{pair[0]} ({pair[1][:6]})" for pair in pairs}


def number(value: float | None, form: str = "{:,.0f}", times: float = 1.0) -> str:
    """`value` in words; "–" where there is none."""
    return "–" if value is None else form.format(value * times)


def span(record: Record, name: str, form: str) -> str:
    """Least and greatest."""
    least, most = record[f"{name}_min"], record[f"{name}_max"]
    return "–" if least is None else f"{form.format(least)}–{form.format(most)}"


def tokens_by_batch(settings: Sequence[Record]) -> Draw:
    """Tokens a second over batch size, a line for each decoder and pair of lengths."""

    def draw(axes: Any) -> None:
        lengths = list(dict.fromkeys((r["prompt_length"], r["length"]) for r in settings))
        for place, (pair, label) in enumerate(names(settings).items()):
            for mark, (prompt, length) in enumerate(lengths):
                own = [r for r in settings if (r["label"], r["weight_hash"]) == pair]
                line = [r for r in own if (r["prompt_length"], r["length"]) == (prompt, length)]
                line.sort(key=lambda r: r["batch"])
                axes.plot(
                    [r["batch"] for r in line],
                    [r["output_tokens_per_second"] for r in line],
                    color=f"C{place % 10}",
                    linestyle=("-", "--", ":")[place // 10 % 3],
                    marker=MARKERS[mark % len(MARKERS)],
                    markersize=4,
                    label=label if len(lengths) == 1 else f"{label}, {prompt} → {length}",
                )
        batches = sorted({r["batch"] for r in settings})
        axes.set_xscale("log", base=2)
        if all(r["output_tokens_per_second"] > 0 for r in settings):
            axes.set_yscale("log")
        axes.set_xticks(batches, [str(batch) for batch in batches])
        axes.set_xlabel("rows written together")
        axes.set_ylabel("output tokens/s, prefill included")
        axes.legend(fontsize=6, **BESIDE)

    return draw


def scalars(settings: Sequence[Record]) -> dict[str, float]:
    """`speed/<key>[/<weights>]/batch_<n>[/prompt_<n>/length_<n>]/tokens_per_second`, and the ratio beside it."""
    several = len({(r["prompt_length"], r["length"]) for r in settings}) > 1
    found, called = {}, names(settings)
    for r in settings:
        lengths = f"/prompt_{r['prompt_length']}/length_{r['length']}" if several else ""
        weights = "" if called[r["label"], r["weight_hash"]] == r["label"] else f"/{r['weight_hash']}"
        name = f"speed/{r['key']}{weights}/batch_{r['batch']}{lengths}"
        found[f"{name}/tokens_per_second"] = r["output_tokens_per_second"]
        if r["relative"] is not None:
            found[f"{name}/relative"] = r["relative"]
    return found
