"""Another source's documents in pieces: a sentence each, or several short ones."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from celeris.data.sources.base import Source, Split
from celeris.errors import CelerisError

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.?!])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])")


@dataclass(frozen=True)
class Sentences:
    """One document a piece of text of at most `longest` characters, none across paragraphs; white space is one space.

    Attributes:
        source: of the documents.
        longest: a sentence that is longer is cut before a word (or a word, at this length).
        shortest: characters of the least piece; shorter ones (headings, ends of long sentences) are left out.
    """

    source: Source
    longest: int = 128
    shortest: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise CelerisError(
                f"A piece has shortest={self.shortest} … longest={self.longest} characters; the first number must be "
                "at least 1 and the smaller one."
            )

    @property
    def title(self) -> str:
        return f"sentences of {self.source.title}"

    def documents(self, split: Split) -> Iterator[str]:
        return sentences(self.source.documents(split), self.longest, self.shortest)

    def fingerprint(self) -> str:
        return f"sentences:{self.longest}:{self.shortest}:{self.source.fingerprint()}"


def sentences(documents: Iterable[str], longest: int, shortest: int = 1) -> Iterator[str]:
    """Pieces of `shortest` … `longest` characters: whole sentences, as many as fit, else the longest parts that do."""
    for document in documents:
        for paragraph in _PARAGRAPH.split(document):
            yield from (piece for piece in _pieces(paragraph, longest) if len(piece) >= shortest)


def _pieces(paragraph: str, longest: int) -> Iterator[str]:
    piece = ""
    for sentence in _split(paragraph):
        if piece and len(piece) + 1 + len(sentence) <= longest:
            piece = f"{piece} {sentence}"
            continue
        if piece:
            yield piece
        while len(sentence) > longest:
            cut = sentence.rfind(" ", 1, longest + 1)
            head = sentence[: cut if cut > 0 else longest]
            yield head
            sentence = sentence[len(head) :].lstrip()
        piece = sentence
    if piece:
        yield piece


def _split(paragraph: str) -> list[str]:
    """The sentences of a paragraph, white space in them made one space; none of white space alone."""
    text = " ".join(paragraph.split())
    found, begin = [], 0
    for end in _SENTENCE.finditer(text):
        found.append(text[begin : end.end()].rstrip())
        begin = end.end()
    return [sentence for sentence in (*found, text[begin:]) if sentence]
