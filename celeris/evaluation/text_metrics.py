"""Figures of a set of texts that need no scoring model: entropy, diversity, repetition, known words.

A generative perplexity alone is beaten by "the the the" (duo#16), so these stand beside it, and the figures of real
text of the same length stand beside them.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LETTERS = re.compile(r"[^\W\d_]+")

DEFINITIONS = {
    "entropy": "entropy (nats) of the token histogram of one sample, mean over samples",
    "entropy_pooled": "entropy (nats) of the token histogram of all samples together",
    "distinct_1": "distinct words / words, whitespace-split, over all samples together",
    "distinct_2": "distinct word pairs / word pairs within a sample, over all samples together",
    "distinct_3": "distinct word triples / word triples within a sample, over all samples together",
    "rep_4": "share of word 4-grams of a sample that occurred before in it, mean over samples (Welleck et al. 2019)",
    "longest_run": "longest run of one token in any sample",
    "longest_word_run": "longest run of one whitespace-split word in any sample",
    "known_word_share": "share of words of >= 2 letters that occur in the training text, case-folded; "
    "words touching either end of a sample are left out, because the cut may have split them",
    "known_word_share_standard_error": "of known_word_share, texts taken as independent (delta method of a ratio)",
    "known_word_share_all": "the same with the words at both ends counted too",
    "unk_rate": "share of tokens that are UNK",
    "mean_length": "tokens of a sample without EOS and PAD: mean, standard deviation (n − 1), least and most",
    "mean_characters": "characters (Unicode code points) of a sample: mean, standard deviation (n − 1), least and most",
}


def entropy(ids: Iterable[int]) -> float:
    """Entropy in nats of the token histogram of `ids`; 0 for an empty sequence."""
    counts = Counter(ids)
    total = sum(counts.values())
    return max(0.0, -sum(c / total * math.log(c / total) for c in counts.values())) if total else 0.0


def mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (n − 1) of at least one value; the deviation of one alone is 0."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1))


def longest_run(items: Iterable[object]) -> int:
    """Length of the longest run of equal neighbours; 0 when there are no items."""
    best = run = 0
    previous: object = object()
    for item in items:
        run = run + 1 if item == previous else 1
        best = max(best, run)
        previous = item
    return best


def distinct(texts: Iterable[str], n: int) -> float | None:
    """Distinct word n-grams / word n-grams over all texts; None when no text has `n` words."""
    grams = [gram for text in texts for gram in _ngrams(text.split(), n)]
    return len(set(grams)) / len(grams) if grams else None


def repetition(texts: Iterable[str], n: int = 4) -> float | None:
    """Mean over texts of the share of word n-grams seen before in the same text; None when no text has `n` words."""
    shares = []
    for text in texts:
        grams = _ngrams(text.split(), n)
        if grams:
            shares.append(1 - len(set(grams)) / len(grams))
    return sum(shares) / len(shares) if shares else None


class WordVocabulary:
    """The words of a training text: case-folded runs of letters of at least `min_letters`."""

    def __init__(self, texts: Iterable[str], min_letters: int = 2, max_characters: int = 100_000_000):
        """Read `texts` until `max_characters`; a corpus beyond that adds next to no new words."""
        self.min_letters = min_letters
        self.characters = 0
        known: set[str] = set()
        for text in texts:
            known.update(word.casefold() for word in _LETTERS.findall(text) if len(word) >= min_letters)
            self.characters += len(text)
            if self.characters >= max_characters:
                break
        self._known = frozenset(known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, word: str) -> bool:
        return word.casefold() in self._known

    def share(self, texts: Iterable[str], whole_words_only: bool = True) -> float | None:
        """Share of the words of `texts` (>= `min_letters` letters) that are known.

        Args:
            texts: samples.
            whole_words_only: leave out words that touch an end of their text, where a cut may have split them.

        Returns:
            A share in [0, 1], or None when no word is left to judge.
        """
        counts = [self.count(text, whole_words_only) for text in texts]
        total = sum(words for _, words in counts)
        return sum(known for known, _ in counts) / total if total else None

    def count(self, text: str, whole_words_only: bool = True) -> tuple[int, int]:
        """Known words of one text, and all that are judged."""
        known = total = 0
        for match in _LETTERS.finditer(text):
            if len(match.group()) < self.min_letters:
                continue
            if whole_words_only and (match.start() == 0 or match.end() == len(text)):
                continue
            total += 1
            known += match.group() in self
        return known, total


@dataclass(frozen=True)
class TextStatistics:
    """Figures of a set of samples; `DEFINITIONS` says what each is. None: not defined for these samples."""

    samples: int
    empty: int
    mean_length: float
    sd_length: float
    min_length: int
    max_length: int
    mean_characters: float
    sd_characters: float
    min_characters: int
    max_characters: int
    entropy: float
    entropy_sd: float
    entropy_pooled: float
    distinct_1: float | None
    distinct_2: float | None
    distinct_3: float | None
    rep_4: float | None
    longest_run: int
    longest_word_run: int
    known_word_share: float | None
    known_word_share_standard_error: float | None
    known_word_share_all: float | None
    unk_rate: float


def describe(
    sequences: Sequence[Sequence[int]], texts: Sequence[str], vocabulary: WordVocabulary, unk_id: int | None = None
) -> TextStatistics:
    """All figures of samples given as token ids (without EOS and PAD) and as text.

    Raises:
        ValueError: as many sequences as texts are needed, and at least one.
    """
    if len(sequences) != len(texts) or not texts:
        raise ValueError(f"{len(sequences)} sequences and {len(texts)} texts; needs the same number, at least one.")
    mean_entropy, entropy_sd = mean_and_sd([entropy(ids) for ids in sequences])
    lengths, characters = [len(ids) for ids in sequences], [len(text) for text in texts]
    (mean_length, sd_length), (mean_characters, sd_characters) = mean_and_sd(lengths), mean_and_sd(characters)
    tokens = sum(lengths)
    unknown = sum(1 for ids in sequences for token in ids if token == unk_id) if unk_id is not None else 0
    return TextStatistics(
        samples=len(texts),
        empty=sum(1 for text in texts if not text.strip()),
        mean_length=mean_length,
        sd_length=sd_length,
        min_length=min(lengths),
        max_length=max(lengths),
        mean_characters=mean_characters,
        sd_characters=sd_characters,
        min_characters=min(characters),
        max_characters=max(characters),
        entropy=mean_entropy,
        entropy_sd=entropy_sd,
        entropy_pooled=entropy(token for ids in sequences for token in ids),
        distinct_1=distinct(texts, 1),
        distinct_2=distinct(texts, 2),
        distinct_3=distinct(texts, 3),
        rep_4=repetition(texts, 4),
        longest_run=max(longest_run(ids) for ids in sequences),
        longest_word_run=max(longest_run(text.split()) for text in texts),
        known_word_share=vocabulary.share(texts),
        known_word_share_standard_error=ratio_error([vocabulary.count(text) for text in texts]),
        known_word_share_all=vocabulary.share(texts, whole_words_only=False),
        unk_rate=unknown / tokens if tokens else 0.0,
    )


def ratio_error(parts: Sequence[tuple[float, float]]) -> float | None:
    """Standard error of Σ a / Σ b over the pairs (a, b) of independent texts (delta method); None for fewer than two
    texts or Σ b = 0."""
    total, count = sum(b for _, b in parts), len(parts)
    if count < 2 or not total:
        return None
    ratio = sum(a for a, _ in parts) / total
    return math.sqrt(sum((a - ratio * b) ** 2 for a, b in parts) * count / (count - 1)) / total


def _ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
