"""Texts of a request cut to what a window holds, and answers cut at their stop strings."""

from collections.abc import Iterator, Sequence

from celeris.errors import CelerisError
from celeris.evaluation.conditional import Pair
from celeris.tokenizer import TextTokenizer


def pair_of(tokenizer: TextTokenizer, context: str, continuation: str, window: int) -> tuple[Pair, bool]:
    """Ids of both, and whether the context was cut on the left to fit.

    The two are tokenized as one text. Spaces at the end of the context belong to the continuation, where a tokenizer
    of words puts them.

    Raises:
        CelerisError: the continuation is empty or longer than the window.
    """
    kept = context.rstrip()
    if kept:
        context, continuation = kept, context[len(kept) :] + continuation
    whole, before = tokenizer.encode(context + continuation), len(tokenizer.encode(context))
    if not continuation or not whole:
        raise CelerisError("A continuation is empty, so it has no likelihood; give it at least one character.")
    before = min(before, len(whole) - 1)  # less where the context's last token took the continuation in
    left, right = whole[:before], whole[before:]
    room = window - len(right)
    if room < 0:
        raise CelerisError(
            f"A continuation has {len(right)} tokens and the window {window}; loglikelihood_rolling reads longer texts."
        )
    return Pair(left[max(len(left) - room, 0) :], right), len(left) > room


def end_of(tokenizer: TextTokenizer, text: str, room: int) -> str:
    """The end of `text` that has at most `room` tokens; the whole text where it fits."""
    ids = tokenizer.encode(text)
    kept = min(len(ids), room)
    while len(ids) > room:  # again where the end of a text has more tokens by itself than it had there
        text = tokenizer.decode(ids[len(ids) - kept :])
        ids, kept = tokenizer.encode(text), kept - 1
    return text


def windows_of(ids: Sequence[int], window: int) -> Iterator[Pair]:
    """Each token once: a whole window from nothing, then half windows that see the half window before them."""
    ids, half = list(ids), max(window // 2, 1)
    if ids:
        yield Pair([], ids[:window])
    for start in range(window, len(ids), half):
        yield Pair(ids[start - (window - half) : start], ids[start : start + half])


def stop_strings(until: str | Sequence[str] | None) -> list[str]:
    """A task's `until` as a list; empty strings stop nothing."""
    words = [until] if isinstance(until, str) else list(until or [])
    return [word for word in words if word]


def cut_at(text: str, stops: Sequence[str]) -> str:
    """`text` before the first place where one of `stops` begins."""
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]
