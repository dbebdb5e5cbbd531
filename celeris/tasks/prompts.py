"""Prompts, byte for byte, from the command line, a file or standard input."""

import json
import sys

from celeris.errors import CelerisError
from celeris.tasks.exports import existing_path


def read_prompts(prompt: str | None, prompt_file: str | None) -> list[str]:
    """The prompts in the order given; one empty prompt (text from nothing) when neither is set.

    Args:
        prompt: the text itself.
        prompt_file: a path, or "-" for standard input. `.jsonl` holds one JSON object with a "prompt" a line; `.txt`
            holds one prompt a line, where only the line feed ends it and an empty line is an empty prompt; anything
            else is JSONL if every line is such an object, and text otherwise.

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


def parse_prompts(data: bytes, name: str, suffix: str) -> list[str]:
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
    return [line.removesuffix("\r") for line in lines] if all(line.endswith("\r") for line in lines) else lines


def _record(line: str, name: str, number: int) -> str:
    if not _is_record(line):
        raise CelerisError(f'Line {number} of {name} is not a JSON object {{"prompt": "…"}}; mend it or name it .txt.')
    return json.loads(line)["prompt"]


def _is_record(line: str) -> bool:
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get("prompt"), str)
