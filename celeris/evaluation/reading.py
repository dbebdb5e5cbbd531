"""What the scorer made of the texts of one setting, read once and kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from celeris.evaluation.samples import content_hash
from celeris.evaluation.scorer import ScoredTexts, Scorer
from celeris.evaluation.store import Store
from celeris.evaluation.text_metrics import entropy, ratio_error
from celeris.evaluation.units import NegativeLogLikelihood, text_size

ROOMS = ("evaluation/reading.py", "evaluation/scorer.py", "evaluation/units.py")

DEFINITIONS = {
    "gen_ppl_mean_of_texts": "mean over texts of each text's own perplexity under the scorer, ruled by its worst; "
    "never to be compared with gen_ppl",
    "gen_ppl_standard_error": "of gen_ppl, as of scorer_bits_per_character: texts taken as independent (delta method)",
    "tokens_scored": "the scorer's tokens in gen_ppl, each counted once",
    "texts_skipped": "texts without a character that is not white space, which the scorer does not read",
    "tokens_cut": "the scorer's tokens of the texts that its budget of characters left unread",
    "scorer_entropy": "entropy (nats) of the histogram of the scorer's own tokens of one text, mean over texts",
}


@dataclass(frozen=True)
class Reading:
    """Scores of the first texts of a setting, and what was left unread.

    Attributes:
        score: of the texts read.
        tokens_cut: the scorer's tokens of those left unread.
    """

    score: ScoredTexts
    tokens_cut: int

    def figures(self) -> dict[str, Any]:
        """Flat figures for the report file; None where no text could be scored."""
        total = self.score.total
        read = [ids for ids in self.score.sequences if ids]
        scored = [nll for nll in self.score.per_text if nll is not None]
        own = [nll.perplexity for nll in scored]
        error = ratio_error([(nll.nats, nll.tokens) for nll in scored])  # of nats/token, and so of log gen_ppl
        return {
            "gen_ppl": total.perplexity if total.tokens else None,
            "gen_ppl_standard_error": None if error is None else total.perplexity * error,
            "gen_ppl_mean_of_texts": sum(own) / len(own) if own else None,
            "scorer_bits_per_character": total.bits_per_character if total.tokens else None,
            "scorer_bits_per_character_standard_error": ratio_error(
                [(nll.bits_per_character * nll.characters, nll.characters) for nll in scored]
            ),
            "scorer_entropy": sum(map(entropy, read)) / len(read) if read else None,
            "tokens_scored": total.tokens,
            "texts_scored": len(own),
            "texts_skipped": self.score.skipped,
            "tokens_cut": self.tokens_cut,
        }


UNREAD: dict[str, Any] = {
    "gen_ppl": None,
    "gen_ppl_standard_error": None,
    "gen_ppl_mean_of_texts": None,
    "scorer_bits_per_character": None,
    "scorer_bits_per_character_standard_error": None,
    "scorer_entropy": None,
    "tokens_scored": 0,
    "texts_scored": 0,
    "texts_skipped": None,
    "tokens_cut": None,
}
"""The figures where there is no scorer."""


def read(scorer: Scorer, texts: Sequence[str], characters: int, store: Store, what: str) -> Reading:
    """Score the first of `texts`, whole, that fit into `characters`; at least one.

    Raises:
        CelerisError: the scorer cannot be loaded.
    """
    count = affordable(texts, characters)
    chosen = list(texts[:count])

    def make() -> dict[str, Any]:
        score = scorer.score(chosen)
        return {
            "nats": [None if nll is None else nll.nats for nll in score.per_text],
            "tokens": [None if nll is None else nll.tokens for nll in score.per_text],
            "sequences": score.sequences,
            "tokens_cut": sum(len(scorer.tokenize(text)) for text in texts[count:]),
        }

    key = {"texts": content_hash(list(texts)), "read": count, "scoring": dict(scorer.scoring)}
    kept = store.get("scores", key, make, ROOMS, f"scores of {what}")
    records: list[NegativeLogLikelihood | None] = []
    for text, nats, tokens in zip(chosen, kept["nats"], kept["tokens"], strict=True):
        size = text_size([text])
        records.append(None if nats is None else NegativeLogLikelihood(nats, tokens, size.characters, size.bytes))
    return Reading(ScoredTexts(records, kept["sequences"]), kept["tokens_cut"])


def affordable(texts: Sequence[str], characters: int) -> int:
    """How many of the first texts, whole, fit into `characters`; at least one."""
    kept, used = 1, len(texts[0])
    while kept < len(texts) and used + len(texts[kept]) <= characters:
        used += len(texts[kept])
        kept += 1
    return kept
