"""Texts against the texts that were wanted: exact match, BLEU, chrF, ROUGE."""

from collections.abc import Sequence
from typing import Any

from celeris.errors import CelerisError

ROUGE = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}

DEFINITIONS = {
    "exact_match": "share of texts equal to their reference, white space at both ends taken off, nothing else changed",
    "bleu": "corpus BLEU, 0 … 100, by sacrebleu; bleu_signature says how",
    "chrf": "corpus chrF2, 0 … 100, by sacrebleu; chrf_signature says how",
    "rouge_1": "F1 of words, mean over texts, by rouge-score: letters a-z and digits, lower case, no stemming",
    "rouge_2": "F1 of word pairs, likewise",
    "rouge_l": "F1 of the longest common subsequence of words, likewise",
    "empty": "texts of white space only: they count, as texts that match nothing but an empty reference",
    "empty_references": "references of white space only: they count likewise",
}


def compare_with_references(texts: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Every figure of `DEFINITIONS` (text k belongs to reference k), the signatures, and `pairs`, their number.

    ROUGE splits words of the Latin alphabet only; where no reference has any, its figures are None.

    Raises:
        CelerisError: not as many references as texts, none at all, or a package is missing.
    """
    if len(texts) != len(references) or not texts:
        raise CelerisError(
            f"There are {len(texts)} texts and {len(references)} references; comparing needs one of each."
        )
    try:
        from rouge_score.rouge_scorer import RougeScorer
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise CelerisError(
            f"BLEU, chrF and ROUGE need `sacrebleu` and `rouge-score` ({error}); run `make install`."
        ) from error
    bleu, chrf, rouge = BLEU(), CHRF(), RougeScorer(list(ROUGE.values()), use_stemmer=False)
    scores = [rouge.score(reference, text) for text, reference in zip(texts, references, strict=True)]
    words = any(rouge._tokenizer.tokenize(reference) for reference in references)
    same = sum(text.strip() == reference.strip() for text, reference in zip(texts, references, strict=True))
    return {
        "pairs": len(texts),
        "exact_match": same / len(texts),
        "bleu": bleu.corpus_score(list(texts), [list(references)]).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(list(texts), [list(references)]).score,
        "chrf_signature": str(chrf.get_signature()),
        **{
            figure: sum(score[name].fmeasure for score in scores) / len(scores) if words else None
            for figure, name in ROUGE.items()
        },
        "empty": sum(not text.strip() for text in texts),
        "empty_references": sum(not reference.strip() for reference in references),
    }
