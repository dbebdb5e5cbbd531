"""The tables of a comparison."""

from collections.abc import Mapping
from typing import Any

from celeris.evaluation.comparison.points import rate_sd
from celeris.evaluation.record import Table

# heading, figure, format
QUALITY = (
    ("gen-PPL", "gen_ppl", ".1f"),
    ("of texts", "gen_ppl_mean_of_texts", ".1f"),
    ("b/char*", "scorer_bits_per_character", ".2f"),
    ("entropy", "entropy", ".2f"),
    ("vs real", "entropy_ratio", ".0%"),
    ("known", "known_word_share", ".1%"),
    ("MAUVE", "mauve", ".3f"),
    ("calls/tok", "calls_per_token", ".3f"),
    ("tok/pass", "tokens_per_forward", ".2f"),
)
DIVERSITY = (
    ("dist-1", "distinct_1", ".2f"),
    ("dist-2", "distinct_2", ".2f"),
    ("dist-3", "distinct_3", ".2f"),
    ("self-BLEU", "self_bleu_4", ".3f"),
    ("rep-4", "rep_4", ".1%"),
    ("run", "longest_run", ".0f"),
    ("word run", "longest_word_run", ".0f"),
    ("copied, longest", "copied_longest", ".0f"),
    ("copied, mean", "copied_mean", ".1f"),
    ("length", "mean_length", ".1f"),
    ("sd of length", "sd_length", ".1f"),
)
SPEED = (
    ("tokens/s", "output_tokens_per_second", ",.0f"),
    ("without prefill", "output_tokens_per_second_without_prefill", ",.0f"),
    ("first text, s", "time_to_first_block_p50", ".3f"),
    ("p50 s", "latency_p50", ".3f"),
    ("p90 s", "latency_p90", ".3f"),
    ("p99 s", "latency_p99", ".3f"),
    ("passes", "forwards", ".0f"),
    ("tok/pass", "tokens_per_forward", ".2f"),
    ("FLOPs/tok", "flops_per_token", ".2e"),
    ("of peak", "share_of_peak", ".1%"),
    ("peak MB", "peak_memory_bytes", ",.0f"),
)


def likelihood(record: Mapping[str, Any]) -> Table:
    """Every likelihood of every system, the one that stands for it first; the n-grams, which are nobody's, last."""
    rows = []
    for system in record["systems"]:
        found = system["likelihood"]
        if found is None:
            continue
        for name in [found["headline"], *(name for name in found["results"] if name != found["headline"])]:
            title = system["name"] if system["part_of"] else f"{system['name']}: {name}"
            sizes = [_count(system["parameters"]), _count(system["tokens_trained"])]
            rows.append([title, *_likelihood(found["results"][name]), *sizes])
    rows += [[f"yardstick: {name}", *_likelihood(result), "–", "–"] for name, result in record["yardsticks"].items()]
    columns = ["", "kind", "nats/token", "bits/character", "s.e. over rows", "perplexity", "seeds", "parameters",
               "tokens trained"]  # fmt: skip
    notes = [
        "± is the sample standard deviation over seeds; s.e.: over held-out rows, of one run (mean of the runs).",
        "An upper bound may lie above the model's true value; an exact figure is what it is.",
    ]
    return Table("Held-out text", columns, rows, notes)


def _likelihood(result: Mapping[str, Any]) -> list[str]:
    error = result["standard_error_bits_per_character"]
    return [
        result["kind"] or "not stated",
        _cell(result["nats_per_token"], ".4f"),
        _cell(result["bits_per_character"], ".4f"),
        "–" if error is None else f"{error:.4f}",
        _cell(result["perplexity"], ".3f"),
        str(result["bits_per_character"]["n"]) if result["bits_per_character"] else "–",
    ]


def matrix(record: Mapping[str, Any]) -> list[Table]:
    """Every setting of every system, real text last; one table of quality and one of diversity."""
    notes = [
        "± is the sample standard deviation over seeds. gen-PPL: of all tokens together; of texts: mean of each text's "
        "own; b/char*: bits per character under the scorer; read all three with the entropy.",
        "! marks settings with a flag; see Flags.",
    ]
    return [
        _matrix(record, "Every setting: quality", QUALITY, notes),
        _matrix(record, "Every setting: diversity, repetition, copying", DIVERSITY, []),
    ]


def _matrix(
    record: Mapping[str, Any], title: str, columns: tuple[tuple[str, str, str], ...], notes: list[str]
) -> Table:
    real = record["real_text"] or {}
    settings = [(system, setting) for system in record["systems"] for setting in system["settings"]]
    have = {key for _, setting in settings for key, value in setting["figures"].items() if value} | set(real)
    shown = [column for column in columns if column[1] in have]
    rows = [
        [_named(system, setting), *(_cell(setting["figures"].get(key), form) for _, key, form in shown)]
        for system, setting in settings
    ]
    if rows and real:
        rows.append(["real text", *("–" if real.get(key) is None else format(real[key], f) for _, key, f in shown)])
    return Table(title, ["", *(heading for heading, _, _ in shown)], rows, notes)


def speed_by_batch(record: Mapping[str, Any]) -> Table:
    """Output tokens/s of every setting at every batch size, of each prompt and output length."""
    records = [(system, r) for system in record["systems"] for r in system["speed"]]
    sizes = sorted({r["batch"] for _, r in records})
    cells: dict[tuple[str, str], dict[int, Any]] = {}
    for system, r in records:
        lengths = f"{r.get('prompt_length') or 0} + {r.get('length')}"
        cells.setdefault((titled(system, r["label"]), lengths), {})[r["batch"]] = r
    rows = [[title, lengths, *(_rate(row.get(size)) for size in sizes)] for (title, lengths), row in cells.items()]
    notes = ["± is the sample standard deviation over timed calls. What the text is worth: see Quality."]
    threads = (record.get("speed_environment") or {}).get("threads")
    if threads:
        notes.append(f"Timed with {threads} thread{'' if threads == 1 else 's'}.")
    return Table("Output tokens/s by batch", ["", "prompt + output", *(f"batch {n}" for n in sizes)], rows, notes)


def speed(record: Mapping[str, Any]) -> Table:
    """Every timed setting with all its figures."""
    records = [(system, r) for system in record["systems"] for r in system["speed"]]
    shown = [column for column in SPEED if any(r.get(column[1]) is not None for _, r in records)]
    rows = []
    for system, r in records:
        figures = [None if r.get(key) is None else (r[key] / 1e6 if key.endswith("bytes") else r[key], form)
                   for _, key, form in shown]  # fmt: skip
        where = [str(r["batch"]), f"{r.get('prompt_length') or 0} + {r.get('length')}"]
        rows.append([titled(system, r["label"]), *where, *("–" if f is None else format(*f) for f in figures)])
    environment = record.get("speed_environment") or {}
    plain = [f"{key.replace('_', ' ')} {value}" for key, value in environment.items() if isinstance(value, str | int)]
    notes = [f"Measured on: {', '.join(plain)}."] if plain else []
    return Table("Every timed setting", ["", "batch", "prompt + output", *(h for h, _, _ in shown)], rows, notes)


def flags(record: Mapping[str, Any]) -> Table:
    """What is wrong with which setting, in any of its seeds."""
    rows = [
        [titled(system, setting["label"]), flag]
        for system in record["systems"]
        for setting in system["settings"]
        for flag in setting["flags"]
    ]
    return Table("Settings with a flag", ["", "flag"], rows)


def provenance(record: Mapping[str, Any]) -> Table:
    """One row a run."""
    rows = []
    for system in (system for system in record["systems"] if system["part_of"] is None):
        for run in system["runs"]:
            training = run["training"]
            machine = ", ".join(str(part) for part in (training.get("cpu"), *(training.get("devices") or [])) if part)
            rows.append(
                [
                    system["name"],
                    run["source"],
                    *(_text(run.get(key)) for key in ("weight_hash", "trained_with_seed", "step", "seed")),
                    _text(training.get("commit") and str(training["commit"])[:12]),
                    machine or "–",
                    _text(run.get("precision")),
                ]
            )
    columns = ["", "run", "weights", "trained with seed", "steps", "evaluated with seed", "commit of the training",
               "trained on", "precision"]  # fmt: skip
    return Table("Runs", columns, rows)


def _named(system: Mapping[str, Any], setting: Mapping[str, Any]) -> str:
    return titled(system, setting["label"]) + (" !" if setting["flags"] else "")


def titled(system: Mapping[str, Any], label: str) -> str:
    """The label of a decoder, the kind of system that it begins with replaced by the system's name."""
    rest = label.removeprefix(system["system"])
    return f"{system['name']}: {label}" if rest == label else system["name"] + rest


def _cell(value: Mapping[str, Any] | None, form: str) -> str:
    if value is None:
        return "–"
    return format(value["mean"], form) + ("" if value["sd"] is None else f" ± {format(value['sd'], form)}")


def _rate(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "–"
    sd = rate_sd(record)
    return _cell({"mean": record["output_tokens_per_second"], "sd": sd}, ",.0f")


def _count(value: Any) -> str:
    return "–" if value is None else f"{value:,}"


def _text(value: Any) -> str:
    return "–" if value is None else str(value)
