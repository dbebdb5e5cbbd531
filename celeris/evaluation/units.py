"""Units of a negative log-likelihood: one record, every unit derived from it.

Perplexities of different tokenizers, or of words and characters, are different quantities (flair#714), and `2 ** loss`
with a natural-log loss is a wrong one (SpeedrunningPLMs!2). So nothing here is a bare float: a `NegativeLogLikelihood`
keeps the sum in nats with the counts it was taken over, and names each unit.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class NegativeLogLikelihood:
    """A sum of −ln p over some text.

    Attributes:
        nats: sum over all tokens of −ln p, natural logarithm.
        tokens: tokens that the sum runs over.
        characters: Unicode code points of the same text.
        bytes: bytes of the same text in UTF-8.
    """

    nats: float
    tokens: int
    characters: int
    bytes: int

    def __add__(self, other: "NegativeLogLikelihood") -> "NegativeLogLikelihood":
        """Sums add up, so a mean over parts is weighted by tokens and never a mean of means."""
        return NegativeLogLikelihood(
            self.nats + other.nats,
            self.tokens + other.tokens,
            self.characters + other.characters,
            self.bytes + other.bytes,
        )

    @property
    def nats_per_token(self) -> float:
        return _ratio(self.nats, self.tokens)

    @property
    def bits_per_token(self) -> float:
        return _ratio(self.nats / math.log(2), self.tokens)

    @property
    def bits_per_character(self) -> float:
        return _ratio(self.nats / math.log(2), self.characters)

    @property
    def bits_per_byte(self) -> float:
        return _ratio(self.nats / math.log(2), self.bytes)

    @property
    def perplexity(self) -> float:
        """exp(nats per token); inf where that exceeds a float."""
        try:
            return math.exp(self.nats_per_token)
        except OverflowError:
            return math.inf

    def as_dict(self) -> dict[str, float | int]:
        """Counts and every unit, for a report file."""
        return {
            "nats": self.nats,
            "tokens": self.tokens,
            "characters": self.characters,
            "bytes": self.bytes,
            "nats_per_token": self.nats_per_token,
            "bits_per_token": self.bits_per_token,
            "bits_per_character": self.bits_per_character,
            "bits_per_byte": self.bits_per_byte,
            "perplexity": self.perplexity,
        }


@dataclass(frozen=True)
class TextSize:
    """Size of some text: Unicode code points and UTF-8 bytes."""

    characters: int
    bytes: int


def text_size(texts: Iterable[str]) -> TextSize:
    """Count characters and UTF-8 bytes ("日" is 1 character and 3 bytes). Lone surrogates count 3 bytes."""
    characters = 0
    size = 0
    for text in texts:
        characters += len(text)
        size += len(text.encode("utf-8", "surrogatepass"))
    return TextSize(characters, size)


def from_mean(nats_per_token: float, tokens: int, size: TextSize) -> NegativeLogLikelihood:
    """The record of a mean loss in nats/token over `tokens` tokens that spell a text of `size`."""
    return NegativeLogLikelihood(nats_per_token * tokens, tokens, size.characters, size.bytes)


def _ratio(total: float, count: int) -> float:
    return total / count if count else math.nan
