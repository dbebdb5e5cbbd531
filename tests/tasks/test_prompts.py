"""Prompts come through files and standard input byte for byte."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from celeris.errors import CelerisError
from celeris.sampling import Blank
from celeris.tasks.prompts import WithBlanks, parse_prompts, read_entries, read_prompts
from tests.tasks.conftest import Command, Workplace
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


@pytest.mark.parametrize("suffix", [".jsonl", ""])
def test_a_line_may_hold_ids_a_chat_or_a_template(suffix: str) -> None:
    chat = [{"role": "user", "content": "<|assistant|>"}]
    lines = [{"prompt": "a"}, {"ids": [3, 4], "note": 1}, {"ids": []}, {"messages": chat}]
    data = "\n".join(map(json.dumps, lines)).encode()
    assert parse_prompts(data, "x", suffix) == ["a", [3, 4], [], chat]
    templates = [{"template": "a ____"}, {"template": ["", "a", 3, [1, 2], "b"]}]
    found = parse_prompts("\n".join(map(json.dumps, templates)).encode(), "x", suffix)
    assert found == [WithBlanks("a ____"), WithBlanks(["a", Blank(3), Blank(1, 2), "b"])]


@pytest.mark.parametrize("value", [{"ids": ["a"]}, {"ids": 3}, {"messages": ["a"]}, {"template": 3}, {"a": 1}])
def test_a_line_that_is_none_of_them(value: dict) -> None:
    with pytest.raises(CelerisError, match="Line 1 of x"):
        parse_prompts(json.dumps(value).encode(), "x", ".jsonl")
    assert parse_prompts(json.dumps(value).encode(), "x", "") == [json.dumps(value)]


def test_texts_with_blanks_from_the_command_line(tmp_path: Path) -> None:
    assert read_entries(None, None, "a ____", None, 3) == [WithBlanks("a ____")]
    assert read_entries("a", None, None, "b", [[2, 3]]) == [WithBlanks(["a", Blank(2, 3), "b"])]
    assert read_entries(None, None, None, "b", 4) == [WithBlanks([Blank(4), "b"])]
    assert read_entries("a", None, None, None, 4) == ["a"]
    file = tmp_path / "both.jsonl"
    file.write_text('{"prompt": "a"}\n{"template": "____"}\n')
    for arguments, words in (
        (("a", None, "____", None), "infill= and prompt="),
        ((None, None, "____", "b"), "infill= and suffix="),
        ((None, "x", None, "b"), "suffix= and prompt_file="),
        ((None, str(file), None, None), "two files"),
    ):
        with pytest.raises(CelerisError, match=words):
            read_entries(*arguments, 4)


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_all_strings_are_echoed_byte_for_byte(
    command: Command, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    data = "".join(json.dumps({"prompt": text}, ensure_ascii=False) + "\n" for text in STRINGS).encode()
    (tmp_path / "prompts.jsonl").write_bytes(data)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    words = ["prompt_file=-" if source == "stdin" else f"prompt_file={tmp_path / 'prompts.jsonl'}"]
    words += ["max_new_tokens=4", "num_inference_steps=1", f"output={tmp_path / 'out.jsonl'}"]
    result = command("sample", *workplace.words, *words)
    assert result.code == 0, result
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().decode().split("\n")[:-1]]
    assert [record["prompt"].encode() for record in records] == [text.encode() for text in STRINGS]
    shown = [f"--- sample {k + 1} of 24\n{text}{records[k]['text']}\n" for k, text in enumerate(STRINGS)]
    assert "".join(shown) in result.out
