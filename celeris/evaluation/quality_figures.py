"""The figures of one quality setting, and what is wrong with them."""

from dataclasses import asdict, dataclass
from typing import Any

from celeris.evaluation.mauve import ENOUGH
from celeris.evaluation.samples import Texts
from celeris.evaluation.slug import slug
from celeris.evaluation.text_metrics import TextStatistics

LOW_ENTROPY, HIGH_ENTROPY, LOW_DIVERSITY = "LOW-ENTROPY", "HIGH-ENTROPY", "LOW-DIVERSITY"
LONG_RUN, REPETITIVE, EMPTY, COPIED, FEW_SAMPLES = "LONG-RUN", "REPETITIVE", "EMPTY", "COPIED", "FEW-SAMPLES"

LOWEST_ENTROPY, HIGHEST_ENTROPY = 0.9, 1.1  # share of real text's, outside which a setting is flagged
LEAST_DIVERSITY = 0.7  # distinct-2 as a share of real text's
LONGEST_RUN = 16
MOST_EXTRA_REPETITION = 0.1
MOST_COPIED = 2.0  # spans of the training text, as a multiple of those in held-out text …
SHORTEST_COPY = 32  # … and in characters: what is shorter is a turn of phrase
SAMPLES_FOR_MAUVE = ENOUGH

SCALARS = ("gen_ppl", "entropy", "entropy_ratio", "distinct_2", "rep_4", "self_bleu_4", "known_word_share",
           "copied_longest", "mauve", "calls_per_token", "tokens_per_forward", "tokens_per_second")  # fmt: skip

DEFINITIONS = {
    "entropy_ratio": "entropy relative to that of real text cut to the lengths of the samples",
    "calls_per_token": "denoiser calls a row took / its output tokens: what solvers and block lengths cost alike; "
    "undefined where no denoiser writes",
    "forwards": "passes of a row through the model, summed over rows: denoiser calls, and passes that read a prompt or "
    "wrote context",
    "tokens_per_forward": "output tokens / forwards",
    "tokens_per_second": "output tokens / seconds of the whole call at the batch size used; measured in passing, see "
    "speed for a figure to compare",
}


@dataclass(frozen=True)
class Measured:
    """All figures of one setting.

    Attributes:
        key, label: the setting in short and in words.
        setting: what made the texts, for the report file.
        statistics: figures of the texts alone.
        scored: figures of the scorer.
        compared: figures of the texts with one another, with training text and with real text.
        real_entropy: mean entropy of real windows cut to the lengths of these texts, so that the two compare.
    """

    key: str
    label: str
    setting: dict[str, Any]
    samples: Texts
    statistics: TextStatistics
    scored: dict[str, Any]
    compared: dict[str, float | None]
    real_entropy: float

    @property
    def entropy_ratio(self) -> float:
        """Entropy relative to real text of the same lengths; 0 when there is no text."""
        return self.statistics.entropy / self.real_entropy if self.real_entropy else 0.0

    def figures(self) -> dict[str, Any]:
        """Flat figures for the report file."""
        made = self.samples
        seconds, tokens = made.seconds, made.tokens
        return {
            **asdict(self.statistics),
            "real_entropy_same_length": self.real_entropy,
            "entropy_ratio": self.entropy_ratio,
            **self.scored,
            **self.compared,
            "calls_per_token": made.calls / tokens if made.calls and tokens else None,
            "forwards": made.forwards or None,
            "tokens_per_forward": tokens / made.forwards if made.forwards else None,
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
        if self._copied(real):
            mine, its = self.compared, real.compared
            found.append(
                f"{COPIED} {where}: up to {mine['copied_longest']} characters in a row stand in the training text, "
                f"{mine['copied_mean']:.0f} on average; held-out text has {its['copied_longest']} and "
                f"{its['copied_mean']:.0f}"
            )
        if s.empty:
            found.append(f"{EMPTY} {where}: {s.empty} of {s.samples} samples have no text")
        return found

    def _copied(self, real: "Measured") -> bool:
        """Spans of the training text are far longer than in held-out text: the longest of all, or on average."""
        if (self.compared.get("copied_longest") or 0) < SHORTEST_COPY:
            return False
        return any(
            (self.compared[name] or 0) > MOST_COPIED * (real.compared[name] or 0)
            for name in ("copied_longest", "copied_mean")
        )

    def scalars(self) -> dict[str, float]:
        """The main figures by logger name."""
        figures = self.figures()
        return {f"quality/{slug(self.key)}/{name}": figures[name] for name in SCALARS if figures[name] is not None}


def mauve_flag(samples: int) -> str:
    """What is wrong with a MAUVE of so few texts."""
    return (
        f"{FEW_SAMPLES}: MAUVE of {samples:,} texts says little and compares with that of as many only; it needs "
        f"{SAMPLES_FOR_MAUVE:,} (evaluation.quality.num_samples)"
    )
