"""The text of one row as it grows block by block."""

from bisect import bisect_right
from collections.abc import Sequence

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from celeris.sampling.stop_strings import first_stop, waiting
from celeris.tokenizer import TextTokenizer

_CHARACTERS = Split(Regex(r"\X"), "isolated")  # extended grapheme clusters (Unicode annex 29)
_REACH = 256  # no character is longer than this


class RowText:
    """Committed tokens of a row, and the text they make, handed out in pieces that are never taken back.

    What a later token could still change waits: half a UTF-8 character, the last character (an accent, a skin tone or
    a second flag letter may follow), and what may be the beginning of a stop string.

    Args:
        tokenizer: whose tokens these are.
        limit: the most tokens.
        eos_id: the token that ends a row; it is not part of it.
        stops: strings that end the text; they are not part of it.

    Attributes:
        tokens: without EOS. Where a stop string begins inside a token, the token is left out, its first characters
            stay in `text`.
        text: all that has been handed out.
        reason: "stop" or "length" when the row has ended, else None.
        stop: the stop string that ended it.
    """

    def __init__(self, tokenizer: TextTokenizer, limit: int, eos_id: int, stops: Sequence[str] = ()) -> None:
        self.tokenizer, self.limit, self.eos_id, self.stops = tokenizer, limit, eos_id, stops
        self.tokens: list[int] = []
        self.text = ""
        self.reason: str | None = None
        self.stop: str | None = None

    def add(self, tokens: list[int]) -> str:
        """Commit the tokens of a block; returns the new piece of text."""
        tokens = tokens[: self.limit - len(self.tokens)]
        if self.eos_id in tokens:
            tokens = tokens[: tokens.index(self.eos_id)]
            self.reason = "stop"
        elif len(self.tokens) + len(tokens) == self.limit:
            self.reason = "length"
        self.tokens += tokens
        text = self.tokenizer.decode(self.tokens)
        found = first_stop(text, self.stops, len(self.text))
        if found is not None:
            text, self.reason, self.stop = text[: found.start], "stop", found.string
            # The most tokens whose text is not longer than what is left of it.
            sizes = range(len(self.tokens) + 1)
            fitting = bisect_right(sizes, len(text), key=lambda n: len(self.tokenizer.decode(self.tokens[:n])))
            self.tokens = self.tokens[: fitting - 1]
        end = len(text) if self.reason else max(len(self.text), len(text) - self._unsettled(text))
        piece = text[len(self.text) : end]
        self.text += piece
        return piece

    def _unsettled(self, text: str) -> int:
        """Characters at the end of `text` that wait."""
        whole = text.rstrip("\ufffd")
        tail = whole[len(self.text) :][-_REACH:]
        last = len(_CHARACTERS.pre_tokenize_str(tail)[-1][0]) if tail else 0
        return len(text) - len(whole) + max(last, waiting(whole, self.stops))
