"""How an entry of reasoning-gym is put to a small model: its own long question, or the bare facts of it.

A form writes prompt and response, and turns what a model wrote back into the form that reasoning-gym's scorer reads.
"""

from dataclasses import dataclass
from typing import Any, Protocol

Entry = dict[str, Any]


class Form(Protocol):
    """Its `repr` is part of the corpus's fingerprint."""

    def prompt(self, entry: Entry) -> str: ...

    def response(self, entry: Entry) -> str: ...

    def answer(self, response: str) -> str:
        """A model's response as reasoning-gym's scorer wants it."""
        ...


@dataclass(frozen=True)
class Verbatim:
    """Question and answer as they are."""

    def prompt(self, entry: Entry) -> str:
        return str(entry["question"])

    def response(self, entry: Entry) -> str:
        return str(entry["answer"])

    def answer(self, response: str) -> str:
        return response


@dataclass(frozen=True)
class Field(Verbatim):
    """One field of the entry's metadata is the prompt: the word to spell, the sum.

    Attributes:
        name: of the field.
    """

    name: str = "word"

    def prompt(self, entry: Entry) -> str:
        return str(entry["metadata"][self.name])


@dataclass(frozen=True)
class SortedNumbers:
    """number_sorting as "up 56 25 75" → "25 56 75" (down: descending); whole numbers lose their ".0"."""

    def prompt(self, entry: Entry) -> str:
        direction = "up" if entry["metadata"]["direction"] == "ascending" else "down"
        return " ".join([direction, *map(_short, entry["metadata"]["original_numbers"])])

    def response(self, entry: Entry) -> str:
        return " ".join(map(_short, entry["metadata"]["sorted_numbers"]))

    def answer(self, response: str) -> str:
        return str(response.split(" "))


@dataclass(frozen=True)
class Board(Verbatim):
    """mini_sudoku as four rows of four signs, "_" for an empty cell, without the spaces between."""

    def prompt(self, entry: Entry) -> str:
        return "\n".join("".join(str(cell or "_") for cell in row) for row in entry["metadata"]["puzzle"])

    def response(self, entry: Entry) -> str:
        return str(entry["answer"]).replace(" ", "")

    def answer(self, response: str) -> str:
        return "\n".join(" ".join(row) for row in response.split("\n"))


@dataclass(frozen=True)
class Target(Verbatim):
    """countdown as "6 61 94 4 = 309": an expression of all the numbers that has that value."""

    def prompt(self, entry: Entry) -> str:
        facts = entry["metadata"]
        return f"{' '.join(map(str, facts['numbers']))} = {facts['target']}"

    def response(self, entry: Entry) -> str:
        return str(entry["answer"]).replace(" ", "")


def _short(number: str) -> str:
    return number.removesuffix(".0")
