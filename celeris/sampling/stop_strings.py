"""Stop strings: where a text ends, and how much of it must wait because it may be the beginning of one."""

from collections.abc import Sequence
from typing import NamedTuple

from celeris.errors import CelerisError


class Stop(NamedTuple):
    """`text[start:end]` is `string`."""

    start: int
    end: int
    string: str


def check_stops(stop: str | Sequence[str]) -> list[str]:
    """One string or several, as a list.

    Raises:
        CelerisError: an empty one, which would stop everything at once.
    """
    stops = [stop] if isinstance(stop, str) else list(stop)
    if "" in stops:
        raise CelerisError("A stop string is empty; leave it out or give it a character.")
    return stops


def first_stop(text: str, stops: Sequence[str], start: int = 0) -> Stop | None:
    """The occurrence in `text[start:]` that is complete first; of two that end together, the longer.

    A reader who gets the text character by character meets this one first, so where a text ends does not depend on the
    blocks it was written in.
    """
    found = [Stop(place, place + len(s), s) for s in stops if (place := text.find(s, start)) >= 0]
    return min(found, key=lambda stop: (stop.end, stop.start), default=None)


def waiting(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a stop string."""
    return max((n for s in stops for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
