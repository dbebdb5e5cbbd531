"""Self-BLEU: how much the texts of one set resemble each other (Zhu et al. 2018, section 3.2)."""

from collections.abc import Sequence

import torch

from celeris.errors import CelerisError
from celeris.streams import generator

MOST_TEXTS = 64

DEFINITION = (
    "BLEU-4 of each text with all others as references, mean over texts, 0 … 100: sacrebleu's sentence BLEU, tokenizer "
    f"13a, smoothing exp, effective order; of at most {MOST_TEXTS} texts with something in them, drawn without "
    "replacement"
)


def self_bleu(texts: Sequence[str], n: int = 4, max_texts: int = MOST_TEXTS, seed: int = 0) -> float | None:
    """Mean BLEU-n of each text against all others: 100 where all are equal, 0 where no two share a word.

    It grows with the number of texts, so compare it with real text's of the same number only.

    Args:
        texts: those of white space only are left out.
        n: longest n-gram.
        max_texts: of more, as many are drawn; the cost grows with their square.
        seed: of the draw.

    Returns:
        None for fewer than 2 texts.

    Raises:
        CelerisError: `sacrebleu` is not installed.
    """
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise CelerisError(f"Self-BLEU needs `sacrebleu` ({error}); run `make install`.") from error
    kept = _drawn([text for text in texts if text.strip()], max_texts, seed)
    if len(kept) < 2:
        return None
    bleu = BLEU(tokenize="13a", smooth_method="exp", max_ngram_order=n, effective_order=True)
    scores = [bleu.sentence_score(text, kept[:k] + kept[k + 1 :]).score for k, text in enumerate(kept)]
    return sum(scores) / len(scores)


def _drawn(texts: list[str], count: int, seed: int) -> list[str]:
    if len(texts) <= count:
        return texts
    order = torch.randperm(len(texts), generator=generator(seed, "self-BLEU"))[:count].tolist()
    return [texts[k] for k in order]
