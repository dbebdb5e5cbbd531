"""Undo the word tokenization that two benchmark corpora are published with.

Figures on detokenized and tokenized text cannot be compared, so the choice is part of the data fingerprint and of
what an export remembers.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class WikiText:
    """WikiText-103: ` @-@ ` joins words, and signs stand apart from them."""

    def __call__(self, text: str) -> str:
        text = re.sub(r" @([-,.])@ ", r"\1", text)
        return _paired(_closed(text)).replace(" 's", "'s").replace("s ' ", "s' ")


@dataclass(frozen=True)
class LM1B:
    """One Billion Word Benchmark: signs stand apart from the words, clitics too."""

    def __call__(self, text: str) -> str:
        text = text.replace("http : / / ", "http://").replace("https : / / ", "https://")
        text = re.sub(r" '(\w+)", r"'\1", text)
        return re.sub(r"([$£]) (?=\d)", r"\1", _paired(_closed(text)))


def _closed(text: str) -> str:
    """No space before a closing sign."""
    return re.sub(r" ([.,;:!?])(?=\s|$)", r"\1", text)


def _paired(text: str) -> str:
    """No space inside brackets and quotation marks."""
    for left, right in ("()", "[]", '""'):
        inside = f"[^{re.escape(left + right)}]+?"
        text = re.sub(rf"{re.escape(left)} ({inside}) {re.escape(right)}", rf"{left}\1{right}", text)
    return text
