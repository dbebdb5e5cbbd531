"""Samples and scores kept between evaluations: what has been measured once is not measured again.

An entry is one JSON file named by the hash of everything its content depends on: weights, settings, seeds, and the
source of the code that made it. So a changed setting, checkpoint or line of code measures again, and nothing has to be
invalidated by hand.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]


def digests(package: Path) -> dict[str, bytes]:
    """Path within the package → digest of the source, of every module."""
    files = sorted(package.rglob("*.py"))
    return {file.relative_to(package).as_posix(): hashlib.sha256(file.read_bytes()).digest() for file in files}


CODE = digests(PACKAGE)
"""Taken while modules are imported: what an edit on disk changes later is not what this process runs."""


class Store:
    """Entries in one folder; without a folder nothing is kept.

    Args:
        folder: made when first needed; None: keep nothing.
        fresh: measure again, once, and overwrite.
    """

    def __init__(self, folder: str | Path | None = None, fresh: bool = False) -> None:
        self.folder = None if folder is None else Path(folder)
        self.fresh = fresh
        self.found: list[str] = []
        """What was not measured again, in words."""
        self._made: set[Path] = set()

    def get(
        self, kind: str, key: dict[str, Any], make: Callable[[], Any], rooms: Sequence[str] = (), what: str = ""
    ) -> Any:
        """The entry, measured by `make` unless it is there.

        Args:
            kind: "samples", "score" …: begins the file's name.
            key: plain JSON values that, with the code, decide what `make` returns.
            make: returns plain JSON values.
            rooms: files and folders of the package whose code takes part in it; the whole package when empty.
            what: the entry in words, for `found`.
        """
        if self.folder is None:
            return make()
        record = {**key, "code": code_hash(tuple(rooms))}
        text = json.dumps(record, sort_keys=True, ensure_ascii=False)
        file = self.folder / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"
        if file.is_file() and (file in self._made or not self.fresh):
            try:
                value = json.loads(file.read_text(encoding="utf-8"))["value"]
            except (ValueError, KeyError):
                pass  # cut short by a crash of the machine: measure again
            else:
                if file not in self._made:  # else it is of this very evaluation
                    self.found.append(what or kind)
                return value
        value = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.{os.getpid()}.part")
        part.write_text(json.dumps({"key": record, "value": value}, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(part, file)
        self._made.add(file)
        return value


@cache
def code_hash(rooms: tuple[str, ...]) -> str:
    """12 hex digits over the source of these files and folders of the package (all of it when there are none).

    Raises:
        FileNotFoundError: a room that the package does not have.
    """
    digest = hashlib.sha256()
    for room in rooms or [""]:
        names = [name for name in CODE if not room or name == room or name.startswith(f"{room}/")]
        if not names:
            raise FileNotFoundError(f"{PACKAGE / room} has no module.")
        for name in names:
            digest.update(name.encode())
            digest.update(CODE[name])
    return digest.hexdigest()[:12]
