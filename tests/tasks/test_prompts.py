"""Prompts come through files and standard input byte for byte."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from celeris.errors import CelerisError
from celeris.tasks.prompts import parse_prompts, read_prompts
from tests.tasks.strings import STRINGS


def test_all_strings_come_through_jsonl(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": s}, ensure_ascii=k % 2 == 0) + "\n" for k, s in enumerate(STRINGS)))
    assert len(STRINGS) == 24
    assert read_prompts(None, str(file)) == STRINGS


def test_all_strings_without_a_line_feed_come_through_text(tmp_path: Path) -> None:
    lines = [s for s in STRINGS if "\n" not in s]
    file = tmp_path / "prompts.txt"
    file.write_bytes("\n".join(lines).encode())
    assert read_prompts(None, str(file)) == lines


@pytest.mark.parametrize("as_json", [True, False])
def test_standard_input_goes_by_its_content(monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    lines = [s for s in STRINGS if "\n" not in s]
    text = "\n".join(json.dumps({"prompt": s}) if as_json else s for s in lines) + "\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert read_prompts(None, "-") == lines


def test_lines_of_text_are_kept_as_they_are() -> None:
    assert parse_prompts(b"a\n\n b \n", "x", ".txt") == ["a", "", " b "]
    assert parse_prompts(b"a\r\nb\r\n", "x", ".txt") == ["a", "b"]
    assert parse_prompts(b"a\rb\nc\n", "x", ".txt") == ["a\rb", "c"]
    assert parse_prompts(b'{"prompt": "x"}\n', "x", ".txt") == ['{"prompt": "x"}']
    assert parse_prompts(b"\xef\xbb\xbfa\n", "x", ".txt") == ["a"]


def test_neither_is_the_empty_prompt() -> None:
    assert read_prompts(None, None) == [""]
    assert read_prompts("a=b", None) == ["a=b"]


@pytest.mark.parametrize(
    ("data", "suffix", "words"),
    [
        (b"", ".txt", "empty"),
        (b"\n\n", ".jsonl", "empty"),
        (b'{"prompt": "a"}\n{"text": "b"}\n', ".jsonl", "Line 2"),
        (b"plain\n", ".jsonl", "Line 1"),
        (b"a\nb\xff\n", ".txt", "Line 2"),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes, suffix: str, words: str) -> None:
    with pytest.raises(CelerisError, match=words):
        parse_prompts(data, "prompts", suffix)


def test_missing_files_folders_and_two_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CelerisError, match="does not exist"):
        read_prompts(None, str(tmp_path / "none.txt"))
    with pytest.raises(CelerisError, match="is a folder"):
        read_prompts(None, str(tmp_path))
    with pytest.raises(CelerisError, match="both set"):
        read_prompts("a", str(tmp_path))
    (tmp_path / "a.txt").touch(), (tmp_path / "b.txt").touch()
    with pytest.raises(CelerisError, match="matches 2"):
        read_prompts(None, str(tmp_path / "*.txt"))
