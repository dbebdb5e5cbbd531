"""Texts with blanks: what is given, what is to be written, and how much of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.sampling.request import encode_prompt

MOST_LENGTHS = 64
"""Ways to fill one template in, over the length ranges of its blanks, that are tried at most."""


@dataclass(frozen=True)
class Blank:
    """A place of `shortest` … `longest` tokens to be written; exactly `shortest` when `longest` is None."""

    shortest: int
    longest: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.most:
            raise CelerisError(
                f"A blank has {self.shortest} … {self.most} tokens; its length must be at least 1, and the first "
                "number of a range the smaller one."
            )

    @property
    def most(self) -> int:
        return self.shortest if self.longest is None else self.longest

    @property
    def lengths(self) -> range:
        return range(self.shortest, self.most + 1)


Template = Sequence[str | Sequence[int] | Blank]
"""Given pieces (texts, or token ids) and blanks, in the order of the text."""

BlankLength = int | Sequence[int | Sequence[int]]
"""One length for all blanks, or one entry a blank: a length, or the (least, most) of a range."""


def parse_template(text: str, blank_length: BlankLength, blank: str = "____") -> list[str | Blank]:
    """The template written as a text, such as "A ____ B".

    Args:
        text: every occurrence of `blank` in it is one, from left to right; two behind each other are two.
        blank_length: tokens of the blanks.
        blank: how a blank is written.

    Raises:
        CelerisError: no blank in the text, or another number of lengths than of blanks.
    """
    if not blank:
        raise CelerisError('blank is empty; name the characters that stand for a blank, such as "____".')
    first, *others = text.split(blank)
    if not others:
        raise CelerisError(f"There is no blank in {text!r}; write {blank} where text is to be filled in.")
    template: list[str | Blank] = [first] if first else []
    for hole, piece in zip(blanks_of(blank_length, len(others)), others, strict=True):
        template.append(hole)
        if piece:
            template.append(piece)
    return template


def blanks_of(blank_length: BlankLength, count: int) -> list[Blank]:
    """`count` blanks of the lengths that `blank_length` names.

    Raises:
        CelerisError: another number of lengths than of blanks.
    """
    lengths = [blank_length] * count if isinstance(blank_length, int) else list(blank_length)
    if len(lengths) != count:
        raise CelerisError(
            f"blank_length names {len(lengths)} lengths and the text has {count} blanks; give one number for all, or "
            "one entry a blank: a number, or [least, most]."
        )
    return [as_blank(length) for length in lengths]


def as_blank(length: int | Sequence[int]) -> Blank:
    """A length, or the (least, most) of a range.

    Raises:
        CelerisError: neither of them.
    """
    values = [length] if isinstance(length, int) else list(length)
    if not 1 <= len(values) <= 2 or not all(isinstance(value, int) for value in values):
        raise CelerisError(f"The length of a blank is {length!r}; it must be a number, or [least, most].")
    return Blank(*values)


class Layout(NamedTuple):
    """A template with every length chosen.

    Attributes:
        context: given tokens before the first blank.
        canvas: from there to the end; `blank_id` at blanks.
        spans: (begin, end) of each blank in the canvas.
    """

    context: list[int]
    canvas: list[int]
    spans: list[tuple[int, int]]

    @property
    def open_end(self) -> bool:
        """Whether nothing is given behind the last blank."""
        return self.spans[-1][1] == len(self.canvas)


def layouts(model: LanguageModel, template: Template) -> Iterator[Layout]:
    """The template in every combination of lengths, shorter ones first; pieces are encoded one by one.

    Raises:
        CelerisError: no blank, too many combinations, or the longest does not fit the window.
    """
    if isinstance(template, str):
        raise CelerisError("A template is a list of pieces and blanks; parse_template makes one of a text.")
    pieces = [item if isinstance(item, Blank) else encode_prompt(model, item) for item in template]
    blanks = [item for item in pieces if isinstance(item, Blank)]
    if not blanks:
        raise CelerisError("The template has no blank; put a Blank(length) where text is to be filled in.")
    ways = 1
    for blank in blanks:
        ways *= len(blank.lengths)
    if ways > MOST_LENGTHS:
        raise CelerisError(
            f"The length ranges of the blanks make {ways} combinations, of which each is tried; at most {MOST_LENGTHS} "
            "are: narrow the ranges."
        )
    given = sum(len(item) for item in pieces if not isinstance(item, Blank))
    longest = given + sum(blank.most for blank in blanks)
    if longest > model.max_length:
        raise CelerisError(
            f"The template has up to {longest} tokens, more than the model's window of {model.max_length}; shorten it "
            "or its blanks."
        )
    return (_laid_out(pieces, lengths, model.pad_id) for lengths in product(*(blank.lengths for blank in blanks)))


def _laid_out(pieces: Sequence[list[int] | Blank], lengths: Sequence[int], blank_id: int) -> Layout:
    tokens: list[int] = []
    spans: list[tuple[int, int]] = []
    left = iter(lengths)
    for item in pieces:
        begin = len(tokens)
        if isinstance(item, Blank):
            tokens += [blank_id] * next(left)
            spans.append((begin, len(tokens)))
        else:
            tokens += item
    first = spans[0][0]
    return Layout(tokens[:first], tokens[first:], [(begin - first, end - first) for begin, end in spans])
