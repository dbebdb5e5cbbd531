"""The figures of one quality setting, what is wrong with them, and how they are laid out."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from celeris.evaluation.record import Table
from celeris.evaluation.scorer import ScoredTexts
from celeris.evaluation.text_metrics import DEFINITIONS, TextStatistics, entropy

LOW_ENTROPY, HIGH_ENTROPY, LOW_DIVERSITY = "LOW-ENTROPY", "HIGH-ENTROPY", "LOW-DIVERSITY"
LONG_RUN, REPETITIVE, EMPTY = "LONG-RUN", "REPETITIVE", "EMPTY"

LOWEST_ENTROPY, HIGHEST_ENTROPY = 0.9, 1.1  # share of real text's, outside which a setting is flagged
LEAST_DIVERSITY = 0.7  # distinct-2 as a share of real text's
LONGEST_RUN = 16
MOST_EXTRA_REPETITION = 0.1

# heading, figure, format
QUALITY = (
    ("gen-PPL", "gen_ppl", ".1f"),
    ("b/char*", "scorer_bits_per_character", ".2f"),
    ("entropy", "entropy", ".2f"),
    ("vs real", "entropy_ratio", ".0%"),
    ("dist-2", "distinct_2", ".2f"),
    ("known", "known_word_share", ".1%"),
    ("c/tok", "calls_per_token", ".2f"),
    ("tokens/s", "tokens_per_second", ",.0f"),
)
DIVERSITY = (
    ("dist-1", "distinct_1", ".2f"),
    ("rep-4", "rep_4", ".1%"),
    ("run", "longest_run", "d"),
    ("word run", "longest_word_run", "d"),
    ("UNK", "unk_rate", ".1%"),
    ("empty", "empty", "d"),
    ("length", "mean_length", ".1f"),
)
SCALARS = ("gen_ppl", "entropy", "entropy_ratio", "distinct_2", "rep_4", "known_word_share", "calls_per_token",
           "tokens_per_second")  # fmt: skip

DEFINITION_OF_CALLS = "denoiser calls a row took / its output tokens: what solvers and block lengths cost alike"


@dataclass(frozen=True)
class Texts:
    """Samples of one setting, or real text.

    Attributes:
        sequences: token ids without EOS and PAD.
        texts: the same as text.
        seconds: what making them took; None for real text.
        calls: denoiser calls over all rows; 0 where no denoiser made them.
    """

    sequences: list[list[int]]
    texts: list[str]
    seconds: float | None = None
    calls: int = 0

    @property
    def tokens(self) -> int:
        return sum(map(len, self.sequences))


@dataclass(frozen=True)
class Measured:
    """All figures of one setting.

    Attributes:
        label: the setting in words.
        setting: what made the texts, for the report file.
        statistics: figures that need no scorer.
        score: None when there is no scorer.
        real_entropy: mean entropy of real windows cut to the lengths of these texts, so that the two compare.
    """

    label: str
    setting: dict[str, Any]
    samples: Texts
    statistics: TextStatistics
    score: ScoredTexts | None
    real_entropy: float

    @property
    def entropy_ratio(self) -> float:
        """Entropy relative to real text of the same lengths; 0 when there is no text."""
        return self.statistics.entropy / self.real_entropy if self.real_entropy else 0.0

    def figures(self) -> dict[str, Any]:
        """Flat figures for the report file."""
        total = self.score.total if self.score else None
        read = [ids for ids in self.score.sequences if ids] if self.score else []
        seconds, calls, tokens = self.samples.seconds, self.samples.calls, self.samples.tokens
        return {
            **asdict(self.statistics),
            "real_entropy_same_length": self.real_entropy,
            "entropy_ratio": self.entropy_ratio,
            "gen_ppl": total.perplexity if total and total.tokens else None,
            "scorer_bits_per_character": total.bits_per_character if total and total.tokens else None,
            "scorer_entropy": sum(map(entropy, read)) / len(read) if read else None,
            "scored": len(read),
            "skipped_by_scorer": self.score.skipped if self.score else None,
            "calls_per_token": calls / tokens if calls and tokens else None,
            "seconds": seconds,
            "tokens_per_second": tokens / seconds if seconds else None,
        }

    def flags(self, real: "Measured") -> list[str]:
        """What is wrong with these samples, compared with `real`."""
        found: list[str] = []
        s, r, where = self.statistics, real.statistics, f"at {self.label}"
        if self.entropy_ratio < LOWEST_ENTROPY:
            found.append(
                f"{LOW_ENTROPY} {where}: {s.entropy:.2f} nats, {self.entropy_ratio:.0%} of real text's; "
                "its gen-PPL says nothing about quality"
            )
        if self.entropy_ratio > HIGHEST_ENTROPY:
            found.append(f"{HIGH_ENTROPY} {where}: {s.entropy:.2f} nats, {self.entropy_ratio:.0%} of real text's")
        if s.distinct_2 is not None and s.distinct_2 < LEAST_DIVERSITY * (r.distinct_2 or 0.0):
            found.append(
                f"{LOW_DIVERSITY} {where}: distinct-2 {s.distinct_2:.2f}, real text has {r.distinct_2:.2f}; "
                "the samples repeat themselves or each other"
            )
        if max(s.longest_run, s.longest_word_run) > LONGEST_RUN:
            found.append(
                f"{LONG_RUN} {where}: up to {s.longest_run} equal tokens and {s.longest_word_run} equal words in a row"
            )
        if s.rep_4 is not None and s.rep_4 > (r.rep_4 or 0.0) + MOST_EXTRA_REPETITION:
            found.append(f"{REPETITIVE} {where}: {s.rep_4:.0%} of word 4-grams occurred before in their sample")
        if s.empty:
            found.append(f"{EMPTY} {where}: {s.empty} of {s.samples} samples have no text")
        return found

    def scalars(self) -> dict[str, float]:
        """The main figures by logger name."""
        f = self.figures()
        steps, name, temperature = (self.setting[k] for k in ("num_inference_steps", "solver_name", "temperature"))
        return {f"quality/steps_{steps}_{slug(name)}_t{temperature:g}/{k}": f[k] for k in SCALARS if f[k] is not None}


def slug(name: str) -> str:
    """`name` as a part of a logger's key: runs of anything but letters, digits and points become one "_"."""
    return re.sub(r"[^\w.]+", "_", name)


def quality_tables(title: str, measured: Sequence[Measured], real: Measured, scored_by: str | None) -> list[Table]:
    """Settings in the order they were asked for (no ranking), real text last."""
    quality = [
        f"entropy: {DEFINITIONS['entropy']}; vs real: relative to real text cut to the samples' lengths.",
        f"dist-2: {DEFINITIONS['distinct_2']}.",
        f"known: {DEFINITIONS['known_word_share']}.",
        f"c/tok: {DEFINITION_OF_CALLS}.",
    ]
    if scored_by:
        scored = real.figures()["scored"]
        quality.insert(
            0,
            f"gen-PPL and b/char*: {scored_by}; of the first {scored} rows of a setting. Compare with real text's, "
            "and read them with the entropy.",
        )
    diversity = [
        f"dist-1: {DEFINITIONS['distinct_1']}.",
        f"rep-4: {DEFINITIONS['rep_4']}.",
        f"run, word run: {DEFINITIONS['longest_run']}, or of one word.",
        "empty: samples without text; length: mean tokens of a sample.",
    ]
    rows = [*measured, real]
    return [
        _table(f"Text quality: {title}", QUALITY, rows, quality),
        _table(f"Diversity and repetition: {title}", DIVERSITY, rows, diversity),
    ]


def _table(title: str, columns: Sequence[tuple[str, str, str]], rows: Sequence[Measured], notes: list[str]) -> Table:
    cells = []
    for measured in rows:
        figures = measured.figures()
        values = [(figures[key], form) for _, key, form in columns]
        cells.append([measured.label, *("–" if value is None else format(value, form) for value, form in values)])
    return Table(title, ["", *(heading for heading, _, _ in columns)], cells, notes)
