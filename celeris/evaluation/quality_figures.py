"""The figures of one quality setting, what is wrong with them, and how they are laid out."""

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

COLUMNS = ["", "gen-PPL", "b/char*", "entropy", "vs real", "dist-2", "rep-4", "known", "tokens/s"]
SCALARS = ("gen_ppl", "entropy", "entropy_ratio", "distinct_2", "rep_4", "known_word_share", "tokens_per_second")


@dataclass(frozen=True)
class Texts:
    """Samples of one setting, or real text.

    Attributes:
        sequences: token ids without EOS and PAD.
        texts: the same as text.
        seconds: what making them took; None for real text.
    """

    sequences: list[list[int]]
    texts: list[str]
    seconds: float | None = None


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
        seconds = self.samples.seconds
        return {
            **asdict(self.statistics),
            "real_entropy_same_length": self.real_entropy,
            "entropy_ratio": self.entropy_ratio,
            "gen_ppl": total.perplexity if total and total.tokens else None,
            "scorer_bits_per_character": total.bits_per_character if total and total.tokens else None,
            "scorer_entropy": sum(map(entropy, read)) / len(read) if read else None,
            "scored": len(read),
            "skipped_by_scorer": self.score.skipped if self.score else None,
            "seconds": seconds,
            "tokens_per_second": sum(map(len, self.samples.sequences)) / seconds if seconds else None,
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

    def cells(self) -> list[str]:
        """A row under `COLUMNS`."""
        f = self.figures()
        return [
            self.label,
            _show(f["gen_ppl"], ".1f"),
            _show(f["scorer_bits_per_character"], ".2f"),
            _show(f["entropy"], ".2f"),
            _show(f["entropy_ratio"], ".0%"),
            _show(f["distinct_2"], ".2f"),
            _show(f["rep_4"], ".1%"),
            _show(f["known_word_share"], ".1%"),
            _show(f["tokens_per_second"], ",.0f"),
        ]

    def scalars(self) -> dict[str, float]:
        """The main figures by logger name."""
        f = self.figures()
        steps, eta = self.setting["num_inference_steps"], self.setting["eta"]
        return {f"quality/steps_{steps}_eta_{eta:g}/{k}": f[k] for k in SCALARS if f[k] is not None}


def quality_table(title: str, measured: Sequence[Measured], real: Measured, scored_by: str | None) -> Table:
    """Settings in the order they were asked for (no ranking), real text last."""
    notes = [f"gen-PPL and b/char*: {scored_by}. Compare them with real text's only, and read them with the entropy."]
    notes = notes if scored_by else []
    notes += [
        f"entropy: {DEFINITIONS['entropy']}; vs real: relative to real text cut to the samples' lengths.",
        f"dist-2: {DEFINITIONS['distinct_2']}; rep-4: {DEFINITIONS['rep_4']}.",
        f"known: {DEFINITIONS['known_word_share']}.",
    ]
    return Table(title, COLUMNS, [m.cells() for m in [*measured, real]], notes)


def _show(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
