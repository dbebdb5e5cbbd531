"""How the figures of quality are laid out: every setting in the order it was asked for (no ranking), real text last."""

from collections.abc import Callable, Sequence
from typing import Any

from celeris.evaluation.memorisation import DEFINITIONS as COPIED
from celeris.evaluation.quality_figures import DEFINITIONS as OWN
from celeris.evaluation.quality_figures import Measured
from celeris.evaluation.reading import DEFINITIONS as READING
from celeris.evaluation.record import Table
from celeris.evaluation.self_bleu import DEFINITION as SELF_BLEU
from celeris.evaluation.text_metrics import DEFINITIONS

Figures = dict[str, Any]
Column = tuple[str, Callable[[Figures], str]]


def _plain(name: str, form: str) -> Callable[[Figures], str]:
    return lambda figures: "–" if figures[name] is None else format(figures[name], form)


def _spread(name: str, sd: str, form: str) -> Callable[[Figures], str]:
    def cell(figures: Figures) -> str:
        return "–" if figures[name] is None else f"{figures[name]:{form}}±{figures[sd]:{form}}"

    return cell


def _range(figures: Figures) -> str:
    return f"{figures['min_length']}–{figures['max_length']}"


QUALITY: tuple[Column, ...] = (
    ("gen-PPL", _plain("gen_ppl", ".1f")),
    ("b/char*", _plain("scorer_bits_per_character", ".2f")),
    ("entropy", _plain("entropy", ".2f")),
    ("vs real", _plain("entropy_ratio", ".0%")),
    ("dist-2", _plain("distinct_2", ".2f")),
    ("known", _plain("known_word_share", ".1%")),
    ("MAUVE", _spread("mauve", "mauve_sd", ".2f")),
)
DIVERSITY: tuple[Column, ...] = (
    ("dist-1", _plain("distinct_1", ".2f")),
    ("dist-3", _plain("distinct_3", ".2f")),
    ("sBLEU", _plain("self_bleu_4", ".1f")),
    ("rep-4", _plain("rep_4", ".1%")),
    ("run", _plain("longest_run", "d")),
    ("word run", _plain("longest_word_run", "d")),
    ("UNK", _plain("unk_rate", ".1%")),
    ("copied", _plain("copied_longest", "d")),
)
COST: tuple[Column, ...] = (
    ("length", _spread("mean_length", "sd_length", ".0f")),
    ("range", _range),
    ("empty", _plain("empty", "d")),
    ("PPL/text", _plain("gen_ppl_mean_of_texts", ".1f")),
    ("c/tok", _plain("calls_per_token", ".2f")),
    ("tok/fwd", _plain("tokens_per_forward", ".2f")),
    ("tokens/s", _plain("tokens_per_second", ",.0f")),
)


def quality_tables(
    title: str, measured: Sequence[Measured], real: Measured, scored_by: str | None, mauve_by: str | None
) -> list[Table]:
    """Three tables, each narrow enough for a terminal.

    Args:
        title: what all settings share.
        scored_by, mauve_by: definitions of the scorer's figures and of MAUVE; None: not measured.
    """
    names, shared = short_labels([m.label for m in measured])
    title = ", ".join([title, *shared])
    figures = [*(m.figures() for m in measured), real.figures()]
    labels = [*names, real.label]
    quality = [
        *([f"gen-PPL and b/char*: {scored_by}; {_read(figures)}"] if scored_by else []),
        f"entropy: {DEFINITIONS['entropy']}; vs real: {OWN['entropy_ratio']}.",
        f"dist-2: {DEFINITIONS['distinct_2']}.",
        f"known: {DEFINITIONS['known_word_share']}.",
        *([f"MAUVE: {mauve_by}; real text's is that of other real text."] if mauve_by else []),
    ]
    diversity = [
        f"dist-1: {DEFINITIONS['distinct_1']}; dist-3: {DEFINITIONS['distinct_3']}.",
        f"sBLEU: {SELF_BLEU}.",
        f"rep-4: {DEFINITIONS['rep_4']}.",
        f"run, word run: {DEFINITIONS['longest_run']}, or of one word.",
        f"copied: {COPIED['copied_longest']}.",
    ]
    cost = [
        "length: mean ± standard deviation, tokens of a sample; range: least and most; empty: samples without text.",
        f"PPL/text: {READING['gen_ppl_mean_of_texts']}.",
        f"c/tok: {OWN['calls_per_token']}.",
        f"tok/fwd: {OWN['tokens_per_forward']}; forwards: {OWN['forwards']}.",
        f"tokens/s: {OWN['tokens_per_second']}.",
    ]
    return [
        _table(f"Text quality: {title}", QUALITY, labels, figures, quality),
        _table(f"Diversity and repetition: {title}", DIVERSITY, labels, figures, diversity),
        _table(f"Length and cost: {title}", COST, labels, figures, cost),
    ]


def short_labels(labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Labels without the words that all of them share, and those words; of a single one, the system alone."""
    parts = [label.split(", ") for label in labels]
    shared = [part for part in parts[0] if all(part in other for other in parts)]
    if len(parts) == 1:
        shared = shared[:1]
    return [", ".join(p for p in part if p not in shared) or ", ".join(part) for part in parts], shared


def _read(figures: Sequence[Figures]) -> str:
    """What the scorer read of all settings and of real text, in words."""
    scored, texts = ([f[name] for f in figures] for name in ("tokens_scored", "texts_scored"))
    skipped, cut = (sum(f[name] or 0 for f in figures) for name in ("texts_skipped", "tokens_cut"))
    return (
        f"{_between(scored)} tokens of {_between(texts)} texts a setting scored, {skipped:,} texts without a word "
        f"skipped and {cut:,} tokens cut (beyond score_characters) over all. Compare with real text's, and read them "
        "with the entropy."
    )


def _between(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} … {high:,}"


def _table(
    title: str, columns: Sequence[Column], labels: Sequence[str], figures: Sequence[Figures], notes: list[str]
) -> Table:
    rows = [[label, *(cell(found) for _, cell in columns)] for label, found in zip(labels, figures, strict=True)]
    return Table(title, ["", *(heading for heading, _ in columns)], rows, notes)
