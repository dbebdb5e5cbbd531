"""MAUVE (Pillutla et al. 2021): how far the distribution of a set of texts is from that of real text.

What it sees is what its features see. Windows of 256 characters of State of the Union messages, 300 a side, two halves
of the same text against shuffled words: 0.97 ± 0.02 and 0.01 ± 0.00 on the scorer's hidden states, 0.97 ± 0.01 and
0.89 ± 0.03 on MiniLM's sentence vectors, which see subject matter before word order (1,000 a side: 0.96 ± 0.01 and
0.82 ± 0.02, other years 0.88 ± 0.01). With 100 a side: 0.94 ± 0.04 and 0.03 ± 0.01, 0.91 ± 0.04 and 0.87 ± 0.05.
"""

import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from celeris.errors import CelerisError
from celeris.evaluation.features import Features, MiniLM

ENOUGH = 1_000  # texts a side, below which the figure depends on how many there are
LEAST = 20  # two clusters of the rule n/10


@dataclass(frozen=True)
class MauveResult:
    """MAUVE over several clusterings of the same texts.

    Attributes:
        mean: in (0, 1], 1 for equal distributions; None where a side has fewer than `LEAST` texts.
        sd: standard deviation (n − 1) over the clustering seeds alone: not the spread over texts, which is larger.
        per_seed: MAUVE of each clustering.
        samples: texts used, the same number on each side.
        skipped: texts of white space only that were left out, of both sides together.
    """

    mean: float | None
    sd: float | None
    per_seed: list[float]
    samples: int
    skipped: int

    @property
    def warning(self) -> str | None:
        """What a reader must know of the figure, in one sentence."""
        if self.mean is None:
            return f"MAUVE is left out: {self.samples} texts are fewer than the {LEAST} that two clusters need."
        if self.samples < ENOUGH:
            return f"MAUVE is of {self.samples} texts, fewer than {ENOUGH:,}: it compares with that of as many only."
        return None


class Mauve:
    """MAUVE by mauve-text's `compute_mauve` (k-means, n/10 clusters, scaling factor 5), one run a clustering seed.

    Args:
        features: texts to vectors; MiniLM when None.
        seeds: clusterings, seeded 0 … seeds − 1; a single one can differ by several hundredths (mauve#11).
    """

    def __init__(self, features: Features | None = None, seeds: int = 5):
        if seeds < 2:
            raise CelerisError(f"seeds is {seeds}; MAUVE needs at least 2 clusterings to have a spread, better 5.")
        self.features = MiniLM() if features is None else features
        self.seeds = seeds
        self.name = f"MAUVE ({self.features.name})"
        self.definition = (
            "MAUVE of as many texts as real ones, texts of white space only left out, mauve-text with its own settings "
            f"(n/10 clusters, PCA to 90 % of the variance, scaling factor 5), mean over {seeds} clustering seeds; "
            f"features: {self.features.definition}"
        )
        self._known: tuple[list[str], np.ndarray] = ([], np.zeros((0, 0)))

    def __call__(self, texts: Sequence[str], reference_texts: Sequence[str]) -> MauveResult:
        """MAUVE of `texts` against real ones of the same lengths; of the longer list the first are taken.

        Raises:
            CelerisError: a package or the weights of the features are missing.
        """
        ours, real = ([text for text in side if text.strip()] for side in (texts, reference_texts))
        skipped = len(texts) + len(reference_texts) - len(ours) - len(real)
        count = min(len(ours), len(real))
        if count < LEAST:
            return MauveResult(None, None, [], count, skipped)
        compute = _compute_mauve()
        p, q = self.features(ours[:count]), self._of_real_text(real[:count])
        with _no_warnings_of_faiss():
            values = [float(compute(p_features=p, q_features=q, seed=seed).mauve) for seed in range(self.seeds)]
        return MauveResult(statistics.fmean(values), statistics.stdev(values), values, count, skipped)

    def _of_real_text(self, texts: list[str]) -> np.ndarray:
        """Features of the last real text are remembered: every setting is compared with the same."""
        if self._known[0] != texts:
            self._known = (texts, self.features(texts))
        return self._known[1]


def _compute_mauve() -> Any:
    try:
        from mauve import compute_mauve
    except ImportError as error:
        raise CelerisError(f"MAUVE needs `mauve-text` ({error}); run `make install`.") from error
    return compute_mauve


@contextmanager
def _no_warnings_of_faiss() -> Iterator[None]:
    """k-means asks for 39 points a cluster, which n/10 clusters never have, and says so from C++, past `sys.stderr`."""
    sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
