"""sample.py beyond one prompt: blanks, stop strings, long text, streams, and what a record says."""

import json
from pathlib import Path

import pytest

from tests.tasks.conftest import Command, Workplace

FEW = ["num_inference_steps=2", "max_new_tokens=12"]


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_blanks_are_filled_in(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    words = ["infill=the ____ law____", "blank_length=[3,[1,2]]", *FEW, f"output={output}"]
    result = command("sample", *workplace.words, *words)
    (found,) = records(output)
    assert result.code == 0 and found["prompt"] == "the ____ law____"
    one, two = found["fillings"]
    assert found["text"] == f"the {one} law{two}" and len(one) == 3 and len(two) <= 2 and found["score"] < 0
    assert found["text"] in result.out and found["tokens"] == len(one + two)
    assert found["metadata"]["decoder"]["blank_length"] == [3, [1, 2]]
    for show in ("trajectory", "none"):
        words = ['prompt="the "', 'suffix=" law"', "blank_length=4", *FEW, f"show={show}"]
        assert command("sample", *workplace.words, *words).code == 0
    assert "suffix=' law' would be changed" in command("sample", *workplace.words, "suffix= law").sentence


def test_templates_and_ids_come_out_of_a_file(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    file, output = tmp_path / "x.jsonl", tmp_path / "out.jsonl"
    file.write_text('{"template": ["the", 3, "law"]}\n{"template": "____"}\n')
    words = [f"prompt_file={file}", *FEW, f"output={output}", "num_samples=2", "batch_size=3"]
    assert command("sample", *workplace.words, *words).code == 0
    found = records(output)
    assert [len(r["text"]) for r in found[:2]] == [9, 9] and [r["seed"] for r in found] == [7, 8, 9, 10]
    file.write_text('{"ids": [3, 4]}\n{"prompt": "the"}\n')
    assert command("sample", *workplace.words, f"prompt_file={file}", *FEW, f"output={output}").code == 0
    found = records(output)
    assert found[0]["ids"] == [3, 4] and "ids" not in found[1]


def test_a_record_says_how_its_text_came_about(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    words = [*FEW, f"output={output}", "num_samples=6", "stop=[e,t]", "min_new_tokens=12", "max_new_tokens=12"]
    assert command("sample", *workplace.words, *words).code == 0
    for found in records(output):
        assert found["finish_reason"] == ("length" if found["stop"] is None else "stop")
        assert found["stop"] in (None, "e", "t") and not {"e", "t"} & set(found["text"])
        assert found["nfe"] == 2 * len(found["block_seconds"][: found["nfe"] // 2]) and found["slid"] == 0
        assert found["tokens_per_forward"] == found["tokens"] / (found["nfe"] + found["context_passes"])
        assert 0 < found["first_block_seconds"] <= found["seconds"]


def test_text_beyond_the_window_slides_and_says_so(command: Command, workplace: Workplace, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    words = ["max_new_tokens=90", "min_new_tokens=90", "num_inference_steps=1", f"output={output}"]
    assert "window of 32" in command("sample", *workplace.words, *words).sentence
    result = command("sample", *workplace.words, *words, "context_overflow=slide", "context_overflow.keep=8")
    assert "1 samples outgrew the model's window" in result.out
    (found,) = records(output)
    assert found["tokens"] == 90 and found["slid"] > 2


def test_a_stream_is_the_text(command: Command, workplace: Workplace) -> None:
    words = ['prompt="the "', "max_new_tokens=20", "num_inference_steps=2"]
    text = command("sample", *workplace.words, *words).out.split("--- sample 1 of 1\n")[1]
    streamed = command("sample", *workplace.words, *words, "show=stream").out.split("--- sample 1\n")[1]
    assert text.rsplit("\n1 samples")[0] == streamed.rsplit("\n  1 of 1 done")[0]
    assert " block 1 " in command("sample", *workplace.words, *words, "show=stream", "num_samples=2").out


def test_token_by_token_it_streams_and_stops_too(command: Command, workplace: Workplace) -> None:
    words = ['prompt="the "', "max_new_tokens=12", "decoder=autoregressive", "min_new_tokens=12"]
    text = command("sample", *workplace.words, *words).out.split("--- sample 1 of 1\n")[1].rsplit("\n1 samples")[0]
    streamed = command("sample", *workplace.words, *words, "show=stream").out.split("--- sample 1\n")[1]
    assert streamed.rsplit("\n  1 of 1 done")[0] == text
    stop = text.removeprefix("the ")[3]
    cut = command("sample", *workplace.words, *words, f"stop=['{stop}']").out.split("--- sample 1 of 1\n")[1]
    assert cut.rsplit("\n1 samples")[0] == "the " + text.removeprefix("the ").split(stop)[0]


def test_adaptive_stopping_from_the_command_line(command: Command, workplace: Workplace) -> None:
    words = ["temperature=0", "adaptive=unchanged", "adaptive.steps=2", *FEW]
    assert command("sample", *workplace.words, *words, "eta=0").code == 0
    assert "eta > 0" in command("sample", *workplace.words, *words).sentence


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["infill=no blank"], "There is no blank in"),
        (["infill=a____", "blank_length=[1,2]"], "2 lengths and the text has 1 blanks"),
        (["infill=a____", "stop=[x]"], "Filling blanks in takes no stop="),
        (["decoder=autoregressive", "adaptive=unchanged"], "This decoder takes no adaptive="),
        (["decoder=masked", "show=stream"], "decoder=masked cannot write with this celeris checkpoint"),
        (["stop=['']"], "stop string is empty"),
        (["context_overflow=slide", "context_overflow.keep=31", "max_new_tokens=99"], "keep is 31"),
    ],
)
def test_what_cannot_start(command: Command, workplace: Workplace, words: list[str], expected: str) -> None:
    assert expected in command("sample", *workplace.words, *FEW, *words).sentence
