"""Interpolated n-gram models of token ids: the yardsticks printed beside a model's bound.

Witten–Bell interpolation, P_k(w|c) = (n(c, w) + d(c) · P_{k-1}(w|c')) / (n(c) + d(c)): n counts occurrences in the
training stream, d(c) is the number of distinct tokens seen after context c, and c' is c without its oldest token
(Bell, Cleary & Witten 1990, "Text Compression"; Chen & Goodman 1998, eq. 10). P_0 is uniform over the vocabulary, so
every distribution sums to one exactly and nothing has probability zero.

The counts live in sorted arrays, one level per order: an n-gram is the number (node of its first n-1 tokens) · V + its
last token. Building is a sort per order and looking up a binary search, both vectorised: 11.5M characters take seconds.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Level:
    """All k-grams of the training stream, and the statistics of the (k-1)-grams as their contexts.

    Attributes:
        keys: sorted, context node · V + token; the position in `keys` is the node of the k-gram.
        counts: occurrences of each k-gram.
        total: per context node, occurrences of the context that something follows, n(c).
        types: per context node, distinct tokens that follow it, d(c).
    """

    keys: Array
    counts: Array
    total: Array
    types: Array


class InterpolatedNGram:
    """An n-gram model fitted to one stream of token ids.

    Args:
        stream: (T,) token ids in reading order.
        order: n; 1 is the unigram model.
        vocab_size: V; every id of the stream, and of whatever is scored, is below it.
        pad_id: this id is a gap: it is neither counted nor scored, and no n-gram reaches across it.

    Raises:
        ValueError: an order below 1, an empty stream, or an id outside the vocabulary.
    """

    def __init__(self, stream: npt.ArrayLike, order: int, vocab_size: int, pad_id: int | None = None):
        if order < 1:
            raise ValueError(f"An n-gram model of order {order} does not exist; the order starts at 1.")
        ids = _checked(np.asarray(stream).reshape(-1), vocab_size)
        real = np.ones(len(ids), bool) if pad_id is None else ids != pad_id
        if not real.any():
            raise ValueError("The stream holds no tokens; an n-gram model needs some.")
        self.order = order
        self.vocab_size = vocab_size
        self.pad_id = pad_id
        self.tokens = int(real.sum())
        self._levels: list[_Level] = []
        context = np.zeros(len(ids), np.int64)
        nodes = 1
        for k in range(1, order + 1):
            alive = (context >= 0) & real
            keys, node, counts = np.unique(
                context[alive] * vocab_size + ids[alive], return_inverse=True, return_counts=True
            )
            owner = keys // vocab_size
            total = np.bincount(owner, weights=counts, minlength=nodes).astype(np.int64)
            self._levels.append(_Level(keys, counts, total, np.bincount(owner, minlength=nodes)))
            if k < order:
                context = np.full(len(ids), -1, np.int64)
                ends = np.flatnonzero(alive)
                follows = ends + 1 < len(ids)
                context[ends[follows] + 1] = node[follows]
                nodes = len(keys)

    def log_probabilities(self, rows: npt.ArrayLike, order: int | None = None) -> npt.NDArray[np.float64]:
        """ln p(token | the tokens before it in its row), each row read from its own start.

        Args:
            rows: (n, L) ids.
            order: use this lower order (1: unigram) instead of the fitted one.

        Returns:
            (n, L) float64; NaN at PAD.
        """
        ids = _checked(np.atleast_2d(np.asarray(rows)), self.vocab_size)
        real = np.ones(ids.shape, bool) if self.pad_id is None else ids != self.pad_id
        return np.where(real, np.log(self._probabilities(ids, real, order)), np.nan)

    def distribution(self, context: npt.ArrayLike, order: int | None = None) -> npt.NDArray[np.float64]:
        """(V,) probabilities of the token after `context` ((k,) ids, oldest first); they sum to one."""
        past = _checked(np.asarray(context, np.int64).reshape(-1), self.vocab_size)[-self.order :]
        rows = np.concatenate([np.tile(past, (self.vocab_size, 1)), np.arange(self.vocab_size)[:, None]], axis=1)
        return self._probabilities(rows, np.ones(rows.shape, bool), order)[:, -1]

    def nats(
        self, rows: npt.ArrayLike, order: int | None = None, counted: npt.NDArray[np.bool_] | None = None
    ) -> float:
        """Sum of −ln p over the tokens of (n, L) `rows`, each row read from its own start, PAD left out; over those
        that are `counted` (n, L) where it is given."""
        ids = np.atleast_2d(np.asarray(rows))
        step = max(1, 2_000_000 // max(1, ids.shape[1]))
        total = 0.0
        for i in range(0, len(ids), step):
            found = self.log_probabilities(ids[i : i + step], order)
            total -= float(np.nansum(found if counted is None else found[counted[i : i + step]]))
        return total

    def _probabilities(self, ids: Array, real: npt.NDArray[np.bool_], order: int | None) -> npt.NDArray[np.float64]:
        """(n, L) probabilities; n-grams do not reach across positions that are not `real`."""
        order = self.order if order is None else order
        if not 1 <= order <= self.order:
            raise ValueError(f"Order {order} was asked of a model fitted up to order {self.order}.")
        probability = np.full(ids.shape, 1.0 / self.vocab_size)
        context = np.zeros(ids.shape, np.int64)
        for level in self._levels[:order]:
            known = (context >= 0) & real
            c = context[known]
            keys = c * self.vocab_size + ids[known]
            place = np.minimum(np.searchsorted(level.keys, keys), len(level.keys) - 1)
            hit = level.keys[place] == keys
            total, types = level.total[c], level.types[c]
            # The last n-gram of the stream has no successor (total and types are 0): the lower order stands.
            estimate = probability[known]
            mixed = (np.where(hit, level.counts[place], 0) + types * estimate) / np.maximum(total + types, 1)
            probability[known] = np.where(total > 0, mixed, estimate)
            node = np.full(ids.shape, -1, np.int64)
            node[known] = np.where(hit, place, -1)
            context = np.full(ids.shape, -1, np.int64)
            context[:, 1:] = node[:, :-1]
        return probability


def _checked(ids: npt.NDArray, vocab_size: int) -> Array:
    if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
        raise ValueError(f"Token ids run from {ids.min()} to {ids.max()}; the vocabulary has {vocab_size}.")
    return ids.astype(np.int64)
