"""The report of an evaluation: JSON with every figure and its provenance, Markdown, PNG plots, and a last screen."""

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from celeris.evaluation.plots import save
from celeris.evaluation.record import Sample, Section, Table
from celeris.evaluation.schema import REPORT, check


@dataclass
class Report:
    """Sections in the order they were asked for, and what they are about.

    Attributes:
        checkpoint: weights, step, parameters, precision, device, seed, and where they came from.
        data: description of the data measured on.
        environment: versions and hardware.
        sections: metric name -> what it found.
        warnings: what a reader must know about the whole report.
        reused: what was not measured again but taken from an earlier evaluation.
        folder: where `save` put the files; None before.
    """

    checkpoint: dict[str, Any]
    data: dict[str, Any]
    environment: dict[str, Any]
    sections: dict[str, Section]
    warnings: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    folder: Path | None = None

    @property
    def flags(self) -> list[str]:
        return [flag for section in self.sections.values() for flag in section.flags]

    @property
    def unavailable(self) -> list[str]:
        return [reason for section in self.sections.values() for reason in section.unavailable]

    @property
    def samples(self) -> list[Sample]:
        return [sample for section in self.sections.values() for sample in section.samples]

    @property
    def headline(self) -> list[str]:
        return [sentence for section in self.sections.values() for sentence in section.headline]

    def kept(self) -> str:
        """What was reused, counted by kind: "samples (5), scores (6)"."""
        kinds = Counter(what.partition(" of ")[0] for what in self.reused)
        return ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))

    def scalars(self) -> dict[str, float]:
        """Flat name -> number of the main figures, for a logger."""
        return {name: value for section in self.sections.values() for name, value in section.scalars.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; numbers that JSON cannot hold (NaN, infinity) become None."""
        record = {
            "checkpoint": self.checkpoint,
            "data": self.data,
            "environment": self.environment,
            "warnings": self.warnings,
            "flags": self.flags,
            "unavailable": self.unavailable,
            "reused": self.reused,
            "metrics": {name: section.record for name, section in self.sections.items()},
        }
        return finite(record)

    def to_markdown(self) -> str:
        """The report as text that reads well as it is and rendered."""
        lines = ["# Evaluation", ""]
        lines += [f"* {name.replace('_', ' ')}: {value}" for name, value in self.checkpoint.items()]
        lines += [f"* data: {self.data.get('source', 'unnamed')}"]
        lines += [f"* kept from an earlier evaluation: {self.kept()}", ""] if self.reused else [""]
        for title, items in (("Warnings", self.warnings + self.flags), ("Left out", self.unavailable)):
            if items:
                lines += [f"## {title}", "", *(f"* {item}" for item in items), ""]
        for section in self.sections.values():
            lines += [f"## {section.title}", "", *(f"{sentence}\n" for sentence in section.headline)]
            for table in section.tables:
                lines += [*markdown_table(table), ""]
            lines += [line for stem in section.plots for line in (f"![{stem.replace('_', ' ')}]({stem}.png)", "")]
        if self.samples:
            lines += ["## Samples", ""]
            for sample in self.samples:
                fence = "`" * max(3, _longest_backticks(sample.text) + 1)
                lines += [f"{sample.setting}:", "", f"{fence}text", sample.text, fence, ""]
        return "\n".join(lines)

    def save(self, folder: str | Path) -> Path:
        """Write report.json, report.md and the plots into `folder`, made if need be.

        Raises:
            CelerisError: the record breaks report.schema.json.
        """
        folder = Path(folder)
        record = self.to_dict()
        check(record, REPORT)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / "report.json").write_text(text + "\n", encoding="utf-8")
        (folder / "report.md").write_text(self.to_markdown() + "\n", encoding="utf-8")
        for section in self.sections.values():
            for stem, draw in section.plots.items():
                save(draw, folder / f"{stem}.png", section.title)
        self.folder = folder
        return folder

    def plots(self) -> dict[str, Path]:
        """Name -> PNG file of a saved report."""
        if self.folder is None:
            return {}
        return {stem: self.folder / f"{stem}.png" for section in self.sections.values() for stem in section.plots}

    def print_summary(self, console: Console | None = None, samples: int = 4) -> None:
        """The last screen: samples, figures with their yardsticks, warnings, and where the files are.

        Args:
            console: where to print; a new one on the terminal when None.
            samples: texts to print, taken evenly from those of the report.
        """
        console = console or Console()
        shown = self.samples
        for sample in [shown[k * len(shown) // samples] for k in range(samples)] if len(shown) > samples else shown:
            console.print(Text(f"── {sample.setting} ──", style="bold cyan"))
            console.print(Text(sample.text), end="\n\n")
        for section in self.sections.values():
            for table in section.tables:
                console.print(Text("\n".join(plain_table(table))), soft_wrap=True, end="\n\n")
        for sentence in self.headline:
            console.print(Text(sentence, style="bold"))
        for warning in self.warnings + self.flags + self.unavailable:
            console.print(Text(f"! {warning}", style="yellow"))
        if self.reused:
            console.print(Text(f"kept from an earlier evaluation: {self.kept()} (fresh=true measures again)"))
        if self.folder is not None:
            console.print(Text(f"report: {self.folder / 'report.md'}"), soft_wrap=True)


def markdown_table(table: Table) -> list[str]:
    """Lines of a Markdown table whose columns are aligned in plain text too, title above and notes below."""
    columns = [column.replace("|", "\\|") for column in table.columns]
    rows = [[cell.replace("|", "\\|") for cell in row] for row in table.rows]
    widths = _widths([columns, *rows], least=3)
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    body = [f"| {' | '.join(_aligned(row, widths))} |" for row in rows]
    notes = [f"* {note}" for note in table.notes]
    head = [f"**{table.title}**", "", f"| {' | '.join(_aligned(columns, widths))} |", f"|{rule}|"]
    return [*head, *body, *([""] if notes else []), *notes]


def plain_table(table: Table) -> list[str]:
    """The same for a terminal, never wrapped or cut; notes stay in the file."""
    widths = _widths([table.columns, *table.rows])
    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    return [table.title, rule, *("  ".join(_aligned(row, widths)) for row in [table.columns, *table.rows]), rule]


def _widths(rows: list[list[str]], least: int = 0) -> list[int]:
    return [max(least, *(len(row[i]) for row in rows)) for i in range(len(rows[0]))]


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]


def finite(value: Any) -> Any:
    """Plain JSON values of `value`: numbers that JSON cannot hold become None."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _longest_backticks(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
