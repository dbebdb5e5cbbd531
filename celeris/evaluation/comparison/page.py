"""The page of a comparison as Markdown: every table and picture with the command that gives it."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celeris.evaluation.comparison.head_to_head import head_to_head
from celeris.evaluation.comparison.tables import flags, likelihood, matrix, provenance, speed, speed_by_batch
from celeris.evaluation.record import Table
from celeris.evaluation.report import markdown_table

MARK = "<!-- evaluate.py compare= writes all that follows -->"
"""What stands above this line of the page is somebody's text, and kept."""
TITLE = "# Comparison\n"
HEAD_TO_HEAD = "Head to head"


def tables(record: Mapping[str, Any]) -> dict[str, list[Table]]:
    """Section → its tables, those without rows left out."""
    found = {
        HEAD_TO_HEAD: head_to_head(record),
        "Likelihood": [likelihood(record)],
        "Quality": matrix(record),
        "Speed": [speed_by_batch(record), speed(record)],
        "Flags": [flags(record)],
        "Provenance": [provenance(record)],
    }
    kept = {title: [table for table in some if table.rows and len(table.columns) > 1] for title, some in found.items()}
    return {title: some for title, some in kept.items() if some}


def comparison_page(record: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    """The page below `MARK`.

    Args:
        record: of `celeris.evaluation.comparison.join`, with `findings`.
        pictures: file name → what it shows.
    """
    commands = [record["made"].get("command"), *_trainings(record)]
    made = _made(len(commands) - 1)
    sections = tables(record)
    lines = [MARK, "", *_head(record), ""]
    if record["warnings"]:
        lines += ["## Warnings", "", *(f"* {warning}" for warning in record["warnings"]), ""]
    lines += ["## What the figures say", "", "Derived from the tables below by rule; ± is the standard deviation over "]
    lines[-1] += "seeds (of quality and likelihood) or over timed calls (of speed)."
    lines += ["", *(f"* {sentence}" for sentence in record["findings"]["sentences"]), "", made, ""]
    lines += _section(HEAD_TO_HEAD, sections.pop(HEAD_TO_HEAD, []), made)
    if pictures:
        lines += ["## Pictures", ""]
        for name, words in pictures.items():
            lines += [f"**{words}**", "", f"![{words}]({name})", "", made, ""]
        lines += [
            "Numbers beside points are steps: of a block, or of a masked-diffusion canvas. Hollow points are of texts "
            "flagged as too uniform, which count for no front and no verdict. Bars are one standard deviation. Of the "
            "prompt and output lengths timed, the pictures take the shortest prompt and the length of the samples.",
            "",
        ]
    elif not record["points"]:
        lines += ["No speed was measured, so there is no picture of quality against speed.", ""]
    for title, some in sections.items():
        lines += _section(title, some, made)
    lines += ["## Commands", "", *(f"{i}. {_code(command_line(c))}" for i, c in enumerate(commands, 1)), ""]
    lines += ["## Definitions", "", *_definitions(record), ""]
    return "\n".join(lines)


def _section(title: str, some: Sequence[Table], made: str) -> list[str]:
    lines = [f"## {title}", ""] if some else []
    for table in some:
        lines += [*markdown_table(table), "", made, ""]
    return lines


def _made(trainings: int) -> str:
    last = f"commands 2–{trainings + 1}" if trainings > 1 else "command 2"
    return "Made by [command 1](#commands)" + (f"; trainings: [{last}](#commands)." if trainings else ".")


def _code(text: str) -> str:
    """A code span that may hold backticks."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}"


def command_line(words: Sequence[str] | None) -> str:
    """What to type, from the words that environment.json keeps."""
    return f"python {shlex.join(words)}" if words else "(command not recorded)"


def _head(record: Mapping[str, Any]) -> Iterator[str]:
    made, data = record["made"], record["data"]
    environment = made.get("environment") or {}
    names = [f"{s['name']} ({_runs(s)})" for s in record["systems"]]
    yield f"* systems: {'; '.join(names)}"
    yield f"* text: {data.get('source')}; {data.get('packing')}; {data.get('eos_policy')}"
    if record.get("scoring"):
        yield "* samples: " + "; ".join(f"{key.replace('_', ' ')}: {_plain(v)}" for key, v in record["scoring"].items())
    commit = (made.get("git") or {}).get("commit")
    yield f"* made: {made.get('date')}, commit {commit or 'unknown'}{_changed(made.get('git'))}"
    machine = [environment.get("cpu"), f"{environment.get('cores')} cores", *(environment.get("devices") or [])]
    packages = environment.get("packages") or {}
    versions = [f"python {environment.get('python')}", *(f"{name} {number}" for name, number in packages.items())]
    yield f"* machine: {', '.join(str(part) for part in machine if part)}; {', '.join(versions)}"


def _runs(system: Mapping[str, Any]) -> str:
    if system["part_of"] is not None:
        return f"the weights of {system['part_of']}"
    return f"{len(system['runs'])} {'run' if len(system['runs']) == 1 else 'runs'}"


def _changed(git: Mapping[str, Any] | None) -> str:
    count = len((git or {}).get("changed") or [])
    return f" and {count} changed files" if count else ""


def _trainings(record: Mapping[str, Any]) -> Iterator[Sequence[str] | None]:
    """The command of each run, once."""
    for system in record["systems"]:
        if system["part_of"] is None:
            yield from (run["training"].get("command") for run in system["runs"])


def _definitions(record: Mapping[str, Any]) -> Iterator[str]:
    for metric, words in record["definitions"].items():
        for name, text in ((name, text) for name, text in words.items() if text):
            yield f"* {metric}, {name.replace('_', ' ')}: {text}"
    yield (
        "* front: settings that no other of the picture beats in both quality and tokens/s, or equals in one and beats "
        "in the other"
    )
    yield "* at equal quality: among the settings of each system that reach the best that both of them reach"
    yield (
        "* within the noise: the intervals mean ± standard deviation of the two overlap; a spread that is not known "
        "counts as none"
    )


def _plain(value: Any) -> str:
    return ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, Mapping) else str(value)
