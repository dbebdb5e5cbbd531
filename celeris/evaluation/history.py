"""A file with one JSON line a checkpoint version, and what became worse between two of them.

A figure is worse when it moved in its bad direction by more than `Z` standard errors of the difference of two
independent figures. It is compared with the newest earlier line that measured the same thing in the same way.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from celeris.errors import CelerisError
from celeris.evaluation.history_figures import HIGHER, LOWER, Groups, show
from celeris.evaluation.record import Table

FORMAT = 1
Z = 3.0
WORSE, BETTER, WITHIN, UNJUDGED, INCOMPARABLE, FIRST = (
    "WORSE",
    "better",
    "within noise",
    "noise unknown",
    "not comparable",
    "first",
)
_NEEDED = ("format", "weight_hash", "system", "data", "seed", "groups")
Line = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One figure beside the stored one.

    Attributes:
        group, name: what was measured, and the figure.
        now, stored: value, error, better, noise; `stored` is None where there is nothing to compare with.
        z: (now − stored)/standard error of the difference, positive where it became worse.
        verdict: one of the words above.
        why: what differs where lines are not comparable; which line `stored` is of otherwise.
    """

    group: str
    name: str
    now: dict[str, Any]
    stored: dict[str, Any] | None
    z: float | None
    verdict: str
    why: str


# -- the file ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> tuple[list[Line], list[str]]:
    """The lines of a history, oldest first, and one sentence a line that is broken and passed over.

    A file that does not exist has no lines.

    Raises:
        CelerisError: it cannot be read.
    """
    try:
        text = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
    except OSError as error:
        raise CelerisError(f"The history {path} cannot be read ({error.strerror}); name a file.") from error
    lines, broken = [], []
    for number, words in enumerate(text.split("\n"), 1):
        if not words.strip():
            continue
        try:
            line = json.loads(words)
        except ValueError as error:
            broken.append(f"Line {number} of {path} is not JSON ({error}) and is passed over.")
            continue
        missing = [key for key in _NEEDED if key not in line] if isinstance(line, dict) else list(_NEEDED)
        if missing:
            broken.append(f"Line {number} of {path} has no {', '.join(missing)} and is passed over.")
        elif line["format"] != FORMAT:
            broken.append(f"Line {number} of {path} has format {line['format']}, not {FORMAT}, and is passed over.")
        else:
            lines.append(line)
    return lines, broken


def append(path: Path, line: Line) -> bool:
    """Add `line`, whole or not at all; False: the same weights were measured in the same way and nothing is added.

    Raises:
        CelerisError: the file cannot be written.
    """
    text = (json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if any(identity(other) == identity(line) for other in read(path)[0]):
                return False
            with path.open("ab+", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                if end:
                    file.seek(end - 1)
                    text = text if file.read(1) == b"\n" else b"\n" + text  # a line cut short keeps to itself
                try:
                    if file.write(text) != len(text):
                        raise OSError(0, "the disk took only a part of the line")
                    os.fsync(file.fileno())
                except BaseException:
                    file.truncate(end)
                    raise
    except OSError as error:
        raise CelerisError(f"The history {path} cannot be written ({error.strerror}); name another file.") from error
    return True


def identity(line: Line) -> str:
    """What two lines share when they are the same measurement of the same weights, and no date or code."""
    conditions = {name: (group["conditions"], group.get("num_samples")) for name, group in line["groups"].items()}
    return json.dumps([line["weight_hash"], line["data"], line["seed"], conditions], sort_keys=True)


# -- comparing --------------------------------------------------------------------------------------------------------


def compare(line: Line, earlier: Sequence[Line]) -> list[Change]:
    """Every figure of `line` beside that of the newest comparable of the `earlier` lines (oldest first)."""
    changes = []
    for group, now in line["groups"].items():
        stored, why = _newest(line, group, earlier)
        for name, figure in now["figures"].items():
            old = stored["groups"][group]["figures"].get(name) if stored else None
            if old is None:
                verdict = INCOMPARABLE if why else FIRST
                changes.append(Change(group, name, figure, None, None, verdict, why))
            else:
                z = z_score(figure, old)
                verdict = UNJUDGED if z is None else WORSE if z > Z else BETTER if z < -Z else WITHIN
                changes.append(Change(group, name, figure, old, z, verdict, named(stored or {})))
    return changes


def z_score(now: Mapping[str, Any], stored: Mapping[str, Any]) -> float | None:
    """Standard errors of the difference by which a figure became worse; None where a noise is unknown."""
    difference = _badness(now) - _badness(stored)
    if difference == 0:
        return 0.0
    if now["error"] is None or stored["error"] is None:
        return None
    error = math.hypot(now["error"], stored["error"])
    return difference / error if error else math.copysign(math.inf, difference)


def _badness(figure: Mapping[str, Any]) -> float:
    value = float(figure["value"])
    return value if figure["better"] == LOWER else -value if figure["better"] == HIGHER else abs(value - 1)


def _newest(line: Line, group: str, earlier: Sequence[Line]) -> tuple[Line | None, str]:
    """The newest line that measured `group` in the same way, or what the newest that measured it did differently."""
    candidates = [other for other in earlier if other["system"] == line["system"] and group in other["groups"]]
    why = ""
    for other in reversed(candidates):
        differs = list(_differences({"data": line["data"], **line["groups"][group]["conditions"]},
                                    {"data": other["data"], **other["groups"][group]["conditions"]}))  # fmt: skip
        if not differs:
            return other, ""
        why = why or f"{named(other)}: {'; '.join(differs)}"
    return None, why


def _differences(now: Any, stored: Any, name: str = "") -> Iterator[str]:
    if isinstance(now, dict) and isinstance(stored, dict):
        for key in [*now, *(key for key in stored if key not in now)]:
            yield from _differences(now.get(key), stored.get(key), f"{name}.{key}" if name else str(key))
    elif now != stored:
        yield f"{name} was {stored} and is {now}"


def named(line: Line) -> str:
    """A line in words: experiment, step, weights and day."""
    parts = [line.get("experiment") or line.get("system"), f"step {line.get('step')}", line.get("weight_hash")]
    return " ".join(str(part) for part in [*parts, str(line.get("date", ""))[:10]] if part)


# -- showing ----------------------------------------------------------------------------------------------------------


def table(title: str, changes: Sequence[Change]) -> Table:
    """Figure, stored, now, direction, z and verdict of every change."""
    rows = [
        [
            f"{change.group}: {change.name}",
            show(change.stored) if change.stored else "–",
            show(change.now),
            change.now["better"],
            "–" if change.z is None else f"{change.z:+.1f}",
            change.verdict,
        ]
        for change in changes
    ]
    notes = [f"z: standard errors of the difference, + is worse; beyond {Z:g} it is more than noise."]
    notes += sorted({f"± of {change.name}: {change.now['noise']}." for change in changes})
    notes += sorted({f"{change.group} is not comparable with {change.why}." for change in changes if _odd(change)})
    return Table(title, ["figure", "stored", "now", "better", "z", "verdict"], rows, notes)


def _odd(change: Change) -> bool:
    return change.verdict == INCOMPARABLE


def regressions(changes: Sequence[Change]) -> list[str]:
    """One sentence a figure that became worse by more than its noise."""
    return [
        f"REGRESSION {change.group}: {change.name} {show(change.now)}, was {show(change.stored)} "
        f"({change.why}); {change.now['better']} is better, z = {change.z:.1f} > {Z:g}."
        for change in changes
        if change.verdict == WORSE and change.stored is not None
    ]


def measured(groups: Groups, **made: Any) -> Line:
    """A line of `groups` and of what made them: date, system, weight_hash, step, experiment, data, seed …"""
    return {"format": FORMAT, **made, "groups": groups}
