"""`python evaluate.py history=runs/history.jsonl`: one line a checkpoint version, and what became worse."""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.text import Text

import celeris
from celeris.config.resolvers import ROOT
from celeris.evaluation import history
from celeris.evaluation.history_figures import groups_of
from celeris.evaluation.report import Report, plain_table
from celeris.tasks.environment import git_state


def keep_history(config: DictConfig, report: Report) -> None:
    """Append the line of `report` to the file `config.history` names, after saying what changed against earlier ones.

    Broken lines of the file are named and passed over. Nothing is appended when it already has a line of the same
    weights measured in the same way.
    """
    path = Path(config.history).expanduser().absolute()
    earlier, broken = history.read(path)
    line = line_of(report)
    changes = history.compare(line, earlier)
    added = history.append(path, line)
    count = len(earlier) + added
    outcome = f"line {count} added" if added else "nothing added: these weights were measured in the same way before"
    show_changes(f"History {path.name}: {history.named(line)}", changes, [*broken, *history.regressions(changes)])
    print(f"history {path}: {outcome}", flush=True)


def line_of(report: Report) -> history.Line:
    """What a history remembers of a report."""
    record = report.to_dict()
    checkpoint, data = record["checkpoint"], record["data"]
    git = git_state(ROOT) or {}
    return history.measured(
        groups_of(record),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        system=checkpoint["system"],
        experiment=_experiment(checkpoint.get("checkpoint")),
        step=checkpoint["step"],
        weight_hash=checkpoint["weight_hash"],
        checkpoint=checkpoint.get("checkpoint"),
        celeris=celeris.__version__,
        commit=git.get("commit"),
        files_changed_since_commit=len(git.get("changed", [])),
        data={key: data.get(key) for key in ("source", "fingerprint")},
        seed=checkpoint["seed"],
        scoring=record["metrics"].get("quality", {}).get("scoring"),
    )


def show_changes(title: str, changes: list[history.Change], warnings: list[str]) -> None:
    """The table and what a reader must know, on the terminal."""
    console = Console()
    table = history.table(title, changes)
    if table.rows:
        console.print(Text("\n".join(plain_table(table))), soft_wrap=True)
        for note in table.notes:
            console.print(Text(note), soft_wrap=True)
    for warning in warnings:
        console.print(Text(f"! {warning}", style="yellow"), soft_wrap=True)


def _experiment(checkpoint: Any) -> str | None:
    """What the export says it is an experiment of."""
    try:
        return json.loads((Path(checkpoint) / "config.json").read_text(encoding="utf-8"))["info"].get("experiment")
    except (OSError, ValueError, KeyError, TypeError):
        return None
