"""Functions of Python's standard library: signature and docstring, and the body that follows."""

import ast
import platform
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from celeris.data.sources.base import Pair, Split, held_out

LEFT_OUT = {"test", "tests", "idlelib", "site-packages", "dist-packages", "__pycache__", "lib2to3", "turtledemo"}


@dataclass(frozen=True)
class Docstrings:
    """Every documented function of the running Python's own library, dedented; the text is under the PSF license.

    Whole modules are held out (`json`, not `json.decoder` alone), by a hash of their name; a prompt that occurs there
    as well is left out of training.

    Attributes:
        val_fraction: share of the modules held out.
    """

    val_fraction: float = 0.05
    title = "docstrings"

    def pairs(self, split: Split) -> Iterator[Pair]:
        unwanted = {pair.prompt for pair in self._pairs["val"]} if split == "train" else set()
        return (pair for pair in self._pairs[split] if pair.prompt not in unwanted)

    def documents(self, split: Split) -> Iterator[str]:
        for prompt, response in self.pairs(split):
            yield from (str(prompt), response)

    def fingerprint(self) -> str:
        return f"{self.title}:{platform.python_implementation()} {platform.python_version()}:{self.val_fraction}"

    @cached_property
    def _pairs(self) -> dict[Split, list[Pair]]:
        found: dict[Split, list[Pair]] = {"train": [], "val": []}
        library = Path(sysconfig.get_paths()["stdlib"])
        for file in sorted(library.rglob("*.py")):
            parts = file.relative_to(library).with_suffix("").parts
            if LEFT_OUT & set(parts):
                continue
            split: Split = "val" if held_out(parts[0], self.val_fraction) else "train"
            found[split] += functions(file.read_text(encoding="utf-8", errors="replace"))
        return found


def functions(code: str) -> Iterator[Pair]:
    """The documented functions in `code` whose body begins on a line of its own; none if it cannot be parsed."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return
    lines = code.splitlines(keepends=True)
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or ast.get_docstring(node) is None:
            continue
        first, begin, end = node.lineno - 1, node.body[0].end_lineno, node.end_lineno
        assert begin is not None and end is not None
        if len(node.body) < 2 or node.body[1].lineno <= begin:
            continue
        whole = textwrap.dedent("".join(lines[first:end])).splitlines(keepends=True)
        yield Pair("".join(whole[: begin - first]), "".join(whole[begin - first :]).rstrip("\n"))
