"""F1, F2, F4: words that Hydra's grammar refuses or changes end in one sentence that shows the form that works."""

import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from celeris.config.overrides import check_overrides, quoted
from celeris.errors import CelerisError
from tests.tasks.strings import STRINGS

ODD = ["a${b", "q\\", '\\"', 'x\\\\"y', "two\nlines", "r\rn", "'", '"', "", 'it\'s "both"', "é ß Ж"]


def parsed(word: str) -> object:
    return OverridesParser.create().parse_override(word).value()


@pytest.mark.parametrize("text", STRINGS + ODD)
def test_the_quoted_form_means_the_text(text: str) -> None:
    assert parsed(f"prompt={quoted(text)}") == text


@pytest.mark.parametrize("text", [text for text in STRINGS + ODD if text])
def test_a_prompt_is_taken_exactly_or_refused(text: str) -> None:
    word = f"prompt={text}"
    try:
        check_overrides([word])
    except CelerisError as error:
        sentence = str(error)
        if "write " in sentence:  # what it says to type is, after the shell, the text
            (typed,) = shlex.split(sentence.split("write ")[1].removesuffix(", or use prompt_file=."))
            assert parsed(typed) == text
            check_overrides([typed])
        else:
            assert "prompt_file=" in sentence
    else:
        assert parsed(word) == text


@pytest.mark.parametrize("value", ["Hello, world", "choice(a,b)", "range(1,3)", "a,b,c"])
def test_a_comma_in_a_prompt_is_never_a_sweep(value: str) -> None:
    with pytest.raises(CelerisError, match="several runs"):
        check_overrides([f"prompt={value}"])


@pytest.mark.parametrize("value", ["null", "1e3", "1790", "true", "[1,2]", "{x: 1}"])
def test_a_prompt_is_never_a_number_or_a_list(value: str) -> None:
    with pytest.raises(CelerisError, match="not as text"):
        check_overrides([f"prompt={value}"])


def test_an_interpolation_in_a_prompt_is_not_looked_up() -> None:
    with pytest.raises(CelerisError, match="prompt_file="):
        check_overrides(['prompt="${oc.env:HOME}"'])


def test_an_equals_sign_in_a_path_is_answered_with_the_quoted_form() -> None:
    with pytest.raises(CelerisError) as raised:
        check_overrides(["ckpt=runs/epoch=9-step=10.ckpt"])
    assert """write 'ckpt="runs/epoch=9-step=10.ckpt"'""" in str(raised.value)


def test_a_word_that_is_no_override_is_refused() -> None:
    with pytest.raises(CelerisError, match="key=value"):
        check_overrides(["prompt=Hello", "world"])


def test_ordinary_overrides_pass() -> None:
    words = ["experiment=tiny", "trainer.max_steps=10", "+trainer.x=1", "~callbacks.samples", "checkpoint=null"]
    check_overrides([*words, "metrics=[likelihood,quality]", "prompt=Fellow citizens", 'checkpoint="a=b"'])
