"""Command-line words before Hydra sees them.

Hydra's grammar reads `prompt=Hello, world` as two jobs, `prompt=1790` as a number, `prompt= x` without its space, and
refuses every character outside ASCII. A word it would refuse or change ends here, in one sentence that shows the form
that works (field cases: hydra issues 1577, 2705, 2657).
"""

import re
import shlex
from collections.abc import Iterable

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from celeris.errors import CelerisError

TEXT_KEYS = frozenset({"prompt", "prompt_file", "infill", "suffix", "blank", "output", "checkpoint", "ckpt", "run_id"})
"""Keys whose value is text, taken as it is typed or not at all."""


def quoted(text: str) -> str:
    """`text` in double quotes as Hydra's grammar wants them (backslashes double only before a quote or the end)."""
    return '"' + re.sub(r'(\\*)("|$)', lambda m: m[1] * 2 + ('\\"' if m[2] else ""), text) + '"'


def check_overrides(words: Iterable[str]) -> None:
    """Refuse the words that Hydra cannot read, or would read as something else than what was typed.

    Args:
        words: the arguments of the command line without options (`key=value`, `+key=value`, `~key`).

    Raises:
        CelerisError: names the word and shows the form that works.
    """
    parser = OverridesParser.create()
    for word in words:
        key, equals, text = word.lstrip("+").partition("=")
        if not equals and not word.startswith("~"):
            raise CelerisError(f"{word!r} is not of the form key=value; put values with spaces in quotes.")
        try:
            override = parser.parse_override(word)
        except HydraException as error:
            raise CelerisError(f"Hydra's grammar cannot read {word!r}; {_working_form(key, text)}") from error
        if key in TEXT_KEYS:
            _check_text(override, key, text)


def _check_text(override: Override, key: str, typed: str) -> None:
    if override.is_sweep_override():
        raise CelerisError(f"{key}={typed!r} would be read as several runs; {_working_form(key, typed)}")
    value = override.value()
    if value is None and key != "prompt":
        return
    in_quotes = isinstance(value, str) and typed.lstrip()[:1] in ("'", '"')
    if not in_quotes and value != typed:
        kind = "changed" if isinstance(value, str) else f"read as {type(value).__name__}, not as text"
        raise CelerisError(f"{key}={typed!r} would be {kind}; {_working_form(key, typed)}")
    if "${" in str(value):  # OmegaConf would look up what stands in the braces
        raise CelerisError(f"{key}={typed!r} holds '${{', which configurations look up; {_other_way(key)}")


def _working_form(key: str, text: str) -> str:
    """What to type instead; a file where the quoted form would be unreadable (long, several lines) or looked up."""
    if "${" in text or "\n" in text or len(text) > 120:
        return _other_way(key)
    word = f"{key}={quoted(text)}"
    plain = "'" in text and not set('$`"\\!') & set(text)  # then double quotes for the shell are easier to read
    shell = f'"{key}=\\"{text}\\""' if plain else shlex.quote(word)
    return f"write {shell}, or use prompt_file=." if key == "prompt" else f"write {shell}."


def _other_way(key: str) -> str:
    return "put it in a file and use prompt_file=." if key == "prompt" else "use a value without it."
