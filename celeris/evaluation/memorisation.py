"""Memorisation: how long a span of a text also stands in the training text."""

from collections.abc import Iterable, Sequence
from typing import Any

from celeris.errors import CelerisError

SEPARATOR = b"\xff"  # is in no UTF-8 text, so no span reaches over two documents

DEFINITIONS = {
    "copied_longest": "characters of the longest span of any sample that also stands in the training text",
    "copied_mean": "the same of each sample (its own longest span), mean over samples",
}


class Memorisation:
    """Finds the longest span of a text that stands, character for character, in one document of the training text.

    Exact: a suffix array over the UTF-8 bytes, made at the first look (seconds and 5 bytes of memory for each byte of
    text, for 12 million characters as for 50).

    Args:
        train_texts: documents.
        max_characters: read until here; the last document is cut.

    Attributes:
        characters: how many were read; `complete` says whether that is all there is.
    """

    def __init__(self, train_texts: Iterable[str], max_characters: int = 50_000_000):
        if max_characters < 1:
            raise CelerisError(f"max_characters is {max_characters}; memorisation needs at least 1 to look in.")
        self.characters = 0
        self.complete = True
        parts: list[bytes] = []
        for text in train_texts:
            if self.characters >= max_characters:
                self.complete = False
                break
            kept = text[: max_characters - self.characters]
            self.complete = len(kept) == len(text)
            self.characters += len(kept)
            parts.append(_bytes(kept))
        self._text = SEPARATOR.join(parts)
        self._order: Any = None

    def longest(self, texts: Sequence[str]) -> list[int]:
        """Characters of the longest copied span of each text; 0 where not even one character occurs.

        Raises:
            CelerisError: `pydivsufsort` is not installed.
        """
        if self._order is None:
            self._order = _suffix_array(self._text)
        return [self._longest(text) for text in texts]

    def _longest(self, text: str) -> int:
        # A span one longer than the best so far is tried at every place: 2 · len(text) searches at most. UTF-8 is
        # self-synchronising, so whole characters are found as whole characters only.
        best = 0
        for start in range(len(text)):
            while start + best < len(text) and self._occurs(_bytes(text[start : start + best + 1])):
                best += 1
            if start + best >= len(text):
                break
        return best

    def _occurs(self, span: bytes) -> bool:
        text, order, size = self._text, self._order, len(span)
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            start = order[middle]
            if text[start : start + size] < span:
                low = middle + 1
            else:
                high = middle
        if low == len(order):
            return False
        start = order[low]
        return text[start : start + size] == span


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # half a surrogate pair is an ordinary character here


def _suffix_array(text: bytes) -> Any:
    """(len(text),) int32: where the suffixes of `text` begin, in their order."""
    try:
        from pydivsufsort import divsufsort
    except ImportError as error:
        raise CelerisError(f"Memorisation needs `pydivsufsort` ({error}); run `make install`.") from error
    return divsufsort(text) if text else []
