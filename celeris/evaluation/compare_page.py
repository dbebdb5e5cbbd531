"""The page of a comparison as Markdown: every table and picture with the command that gives it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celeris.evaluation.compare_tables import flags, likelihood, matrix, provenance, speed, speed_by_batch
from celeris.evaluation.record import Table
from celeris.evaluation.report import markdown_table

MARK = "<!-- evaluate.py compare= writes all that follows -->"
"""What stands above this line of the page is somebody's text, and kept."""
TITLE = "# Comparison\n"


def tables(record: Mapping[str, Any]) -> dict[str, list[Table]]:
    """Section → its tables, those without rows left out."""
    found = {
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
        record: of `celeris.evaluation.compare.join`, with `findings`.
        pictures: file name → what it shows.
    """
    command = command_line(record["made"].get("command"))
    made = f"Made by `{command}`; the trainings: [commands](#commands)."
    lines = [MARK, "", *_head(record), ""]
    if record["warnings"]:
        lines += ["## Warnings", "", *(f"* {warning}" for warning in record["warnings"]), ""]
    lines += ["## What the figures say", "", "Derived from the tables below by rule; ± is the standard deviation over "]
    lines[-1] += "seeds (of quality and likelihood) or over timed calls (of speed)."
    lines += ["", *(f"* {sentence}" for sentence in record["findings"]["sentences"]), "", made, ""]
    if pictures:
        lines += ["## Pictures", ""]
        for name, words in pictures.items():
            lines += [f"**{words}**", "", f"![{words}]({name})", "", made, ""]
        lines += [
            "Hollow points are of texts flagged as too uniform, which count for no front and no sentence above. Of the "
            "prompt and output lengths timed, the pictures take the shortest prompt and the length of the samples.",
            "",
        ]
    elif not record["points"]:
        lines += ["No speed was measured, so there is no picture of quality against speed.", ""]
    for title, some in tables(record).items():
        lines += [f"## {title}", ""]
        for table in some:
            lines += [*markdown_table(table), "", made, ""]
    lines += ["## Commands", "", "```bash", *_commands(record), command, "```", ""]
    lines += ["## Definitions", "", *_definitions(record), ""]
    return "\n".join(lines)


def command_line(words: Sequence[str] | None) -> str:
    """What to type, from the words that environment.json keeps."""
    return f"python {shlex.join(words)}" if words else "(command not recorded)"


def _head(record: Mapping[str, Any]) -> Iterator[str]:
    made, data = record["made"], record["data"]
    environment = made.get("environment") or {}
    names = [f"{s['name']} ({len(s['runs'])} {'run' if len(s['runs']) == 1 else 'runs'})" for s in record["systems"]]
    yield f"* systems: {', '.join(names)}"
    yield f"* text: {data.get('source')}; {data.get('packing')}; {data.get('eos_policy')}"
    if record.get("scoring"):
        yield "* samples: " + "; ".join(f"{key.replace('_', ' ')}: {_plain(v)}" for key, v in record["scoring"].items())
    commit = (made.get("git") or {}).get("commit")
    yield f"* made: {made.get('date')}, commit {commit or 'unknown'}{_changed(made.get('git'))}"
    machine = [environment.get("cpu"), f"{environment.get('cores')} cores", *(environment.get("devices") or [])]
    packages = environment.get("packages") or {}
    versions = [f"python {environment.get('python')}", *(f"{name} {number}" for name, number in packages.items())]
    yield f"* machine: {', '.join(str(part) for part in machine if part)}; {', '.join(versions)}"


def _changed(git: Mapping[str, Any] | None) -> str:
    count = len((git or {}).get("changed") or [])
    return f" and {count} changed files" if count else ""


def _commands(record: Mapping[str, Any]) -> Iterator[str]:
    for system in record["systems"]:
        for run in system["runs"]:
            words = run["training"].get("command")
            yield command_line(words) if words else f"# {run['source']}: the command of its training is not recorded"


def _definitions(record: Mapping[str, Any]) -> Iterator[str]:
    for metric, words in record["definitions"].items():
        for name, text in ((name, text) for name, text in words.items() if text):
            yield f"* {metric}, {name.replace('_', ' ')}: {text}"
    for system in record["systems"]:
        for name, result in ((system["likelihood"] or {}).get("results") or {}).items():
            if result.get("definition"):
                yield f"* likelihood, {system['name']}, {name}: {result['definition']}"
    yield (
        "* front: settings that no other of the picture beats in both quality and tokens/s, or equals in one and beats "
        "in the other"
    )
    yield (
        "* within the noise: the intervals mean ± standard deviation of the two overlap; a spread that is not known "
        "counts as none"
    )


def _plain(value: Any) -> str:
    return ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, Mapping) else str(value)
