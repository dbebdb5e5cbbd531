"""The name somebody probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def hint(name: str, known: Iterable[str]) -> str:
    """`did you mean max_steps?`, or the whole list where nothing is near."""
    names = sorted({str(item) for item in known})
    close = get_close_matches(str(name), names, n=1, cutoff=0.45)
    if close:
        return f"did you mean {close[0]}?"
    return f"choose one of: {', '.join(names)}." if names else "nothing can be set there."
