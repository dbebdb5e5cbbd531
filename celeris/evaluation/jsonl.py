"""Texts from files of anybody: JSON records, one a line, or plain text, one a line. A bad line is named."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from celeris.errors import CelerisError


def read_records(path: str | Path, required: Sequence[str], optional: Sequence[str] = ()) -> list[dict[str, str]]:
    """The records of a file of JSON objects, one a line; other keys than those named are left out.

    Raises:
        CelerisError: no such file, or a line that is no such object; the sentence gives its number.
    """
    records = []
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise CelerisError(f"Line {number} of {path} is not JSON ({error}); write one object a line.") from error
        records.append(_fields(record, required, optional, f"Line {number} of {path}"))
    return records


def read_texts(path: str | Path) -> list[dict[str, str]]:
    """Records with "text" and perhaps "reference": of a .txt file each line is a text, of any other each is JSON."""
    if Path(path).suffix.lower() == ".txt":
        return [{"text": line} for _, line in _lines(path)]
    return read_records(path, ["text"], ["reference"])


def _fields(record: object, required: Sequence[str], optional: Sequence[str], where: str) -> dict[str, str]:
    wanted = ", ".join(f'"{key}": "…"' for key in required)
    if not isinstance(record, dict):
        raise CelerisError(f"{where} is not an object; write {{{wanted}}}.")
    for key in required:
        if key not in record:
            raise CelerisError(f"{where} has no {key!r}; write {{{wanted}}}.")
    found = {key: record[key] for key in (*required, *optional) if record.get(key) is not None or key in required}
    for key, value in found.items():
        if not isinstance(value, str):
            raise CelerisError(f"{where} has {key}={value!r}; it must be a text in quotation marks.")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise CelerisError(f"{where} has half of a surrogate pair in {key!r}; write whole characters.") from None
    return found


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    file = Path(path)
    if not file.is_file():
        raise CelerisError(f"There is no file {file}; name a .jsonl or .txt file.")
    lines = file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()  # what stands after the last line's end
    for number, line in enumerate(lines, 1):
        try:
            yield number, line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise CelerisError(f"Line {number} of {file} is not UTF-8 ({error.reason}); save it as UTF-8.") from error
