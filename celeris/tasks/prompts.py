"""Prompts, byte for byte, from the command line, a file or standard input."""

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from celeris.errors import CelerisError
from celeris.sampling import Blank
from celeris.sampling.template import BlankLength, as_blank, blanks_of
from celeris.tasks.exports import existing_path


class WithBlanks(NamedTuple):
    """A text to be filled in: with blanks written in it, or a list of pieces and blanks."""

    template: str | list[str | Blank]


Entry = str | list[int] | list[dict[str, str]] | WithBlanks
"""What one line asks for: to continue a text, token ids or a chat, or to fill blanks in."""


def read_entries(
    prompt: str | None, prompt_file: str | None, infill: str | None, suffix: str | None, blank_length: BlankLength
) -> list[Entry]:
    """As `read_prompts`, or the one text that `infill`, or `prompt` and `suffix`, say.

    Raises:
        CelerisError: also where two of them are set that exclude each other, or texts to continue and texts with blanks
            come together.
    """
    if infill is not None:
        for key, other in (("prompt", prompt), ("prompt_file", prompt_file), ("suffix", suffix)):
            if other is not None:
                raise CelerisError(f"infill= and {key}= are both set; give one of them.")
        return [WithBlanks(infill)]
    if suffix is not None:
        if prompt_file is not None:
            raise CelerisError('suffix= and prompt_file= are both set; write a "template" into the file.')
        pieces = (prompt or "", blanks_of(blank_length, 1)[0], suffix)
        return [WithBlanks([piece for piece in pieces if piece != ""])]
    entries = read_prompts(prompt, prompt_file)
    if len({isinstance(entry, WithBlanks) for entry in entries}) > 1:
        raise CelerisError(f"{prompt_file} holds both prompts and templates; put them into two files.")
    return entries


def read_prompts(prompt: str | None, prompt_file: str | None) -> list[Entry]:
    """The prompts in the order given; one empty prompt (text from nothing) when neither is set.

    Args:
        prompt: the text itself.
        prompt_file: a path, or "-" for standard input. `.jsonl` holds one JSON object a line, with a "prompt" (text),
            "ids" (token ids), "messages" (a chat: [{"role": …, "content": …}, …]) or "template" (a text with blanks,
            or a list of texts and blanks, a blank being its length or [least, most]); `.txt` holds one prompt a line,
            where only the line feed ends it and an empty line is an empty prompt; anything else is JSONL if every line
            is such an object, and text otherwise.

    Raises:
        CelerisError: both are set, the file is missing or empty, or a line cannot be read.
    """
    if prompt is not None and prompt_file is not None:
        raise CelerisError("prompt= and prompt_file= are both set; give one of them.")
    if prompt_file is None:
        return ["" if prompt is None else prompt]
    if prompt_file == "-":
        return parse_prompts(sys.stdin.buffer.read(), "standard input", "")
    path = existing_path(prompt_file, "prompt_file")
    if path.is_dir():
        raise CelerisError(f"prompt_file={prompt_file} is a folder; give a .txt or .jsonl file.")
    return parse_prompts(path.read_bytes(), prompt_file, path.suffix)


def parse_prompts(data: bytes, name: str, suffix: str) -> list[Entry]:
    """Prompts in `data`; `suffix` is the file's (".txt", ".jsonl", or anything else to go by the content)."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CelerisError(f"Line {line} of {name} is not UTF-8; save it as UTF-8.") from error
    lines = text.removesuffix("\n").split("\n")
    if not text.strip("\r\n"):
        raise CelerisError(f"{name} is empty; give at least one prompt.")
    if suffix == ".jsonl":
        return [_record(line, name, number) for number, line in enumerate(lines, 1) if line.strip()]
    if suffix != ".txt" and all(_is_record(line) for line in lines):
        return [_record(line, name, number) for number, line in enumerate(lines, 1)]
    return [line.removesuffix("\r") for line in lines] if all(line.endswith("\r") for line in lines) else [*lines]


def _record(line: str, name: str, number: int) -> Entry:
    read = _reader(line)
    if read is None:
        raise CelerisError(
            f'Line {number} of {name} is not a JSON object {{"prompt": "…"}} (or "ids", "messages", "template"); mend '
            "it or name it .txt."
        )
    return read()


def _is_record(line: str) -> bool:
    return _reader(line) is not None


def _reader(line: str) -> Callable[[], Entry] | None:
    """What makes an entry of a line, or None where it is no record."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    kinds = [key for key in ("prompt", "ids", "messages", "template") if isinstance(value, dict) and key in value]
    if len(kinds) != 1:
        return None
    (kind,), content = kinds, value[kinds[0]]
    if kind == "prompt":
        return (lambda: content) if isinstance(content, str) else None
    if kind == "template":
        return (lambda: WithBlanks(_template(content))) if isinstance(content, str | list) else None
    item = int if kind == "ids" else dict
    return (lambda: content) if isinstance(content, list) and all(isinstance(x, item) for x in content) else None


def _template(content: str | list[Any]) -> str | list[str | Blank]:
    if isinstance(content, str):
        return content
    return [item if isinstance(item, str) else as_blank(item) for item in content if item != ""]
