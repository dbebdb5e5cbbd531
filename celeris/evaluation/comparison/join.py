"""Finished reports side by side: what may be compared, seeds of one configuration joined, and the record of it all."""

from collections.abc import Mapping, Sequence
from typing import Any

from celeris.errors import CelerisError
from celeris.evaluation.comparison.contenders import contenders, yardsticks
from celeris.evaluation.comparison.groups import Entry, figures, group, system_record
from celeris.evaluation.comparison.points import fronts, points

FORMAT = 1
"""Version of the record; see comparison.schema.json."""

SAME_DATA = {
    "source_fingerprint": "text",
    "tokenizer_fingerprint": "tokenizer",
    "packing": "packing",
    "eos_policy": "EOS policy",
}
SAME_ROWS = {"rows": "held-out rows", "rows_held_out": "rows to choose from", "row_length": "tokens a row"}


def join(
    entries: Sequence[Entry],
    made: Mapping[str, Any],
    *,
    speed: Mapping[str, Any] | None = None,
    allow_other_scoring: bool = False,
) -> dict[str, Any]:
    """The record of a comparison (comparison.schema.json), plain JSON values.

    Args:
        entries: finished reports, in the order in which systems are shown, but that ours come first.
        made: date, command, git, environment of the comparison itself.
        speed: record of one interleaved run over one checkpoint a system; None: what the reports have.
        allow_other_scoring: join although scorer, window, length … of the samples differ; the page warns.

    Raises:
        CelerisError: fewer than two, the same weights twice, or figures that do not compare.
    """
    warnings = check_comparable(entries, allow_other_scoring)
    groups = group(entries)
    systems = [system_record(name, members) for name, members in groups.items()]
    records = _speed(groups, speed)
    if speed is None and any(records.values()) and len(groups) > 1:
        warnings.append("Speed was measured by separate evaluations, not interleaved in one run.")
    for system in systems:
        system["speed"] = records[system["name"]]
    ngrams, differing = yardsticks(systems)
    warnings += differing
    systems = contenders(systems)
    first = entries[0].report
    quality = next((entry.metric("quality") for entry in entries if entry.metric("quality")), {})
    found = points(systems)
    return {
        "comparison": FORMAT,
        "made": dict(made),
        "warnings": warnings,
        "data": {key: first.get("data", {}).get(key) for key in ("source", *SAME_DATA)},
        "rows": {key: entries[0].metric("likelihood").get(key) for key in SAME_ROWS},
        "scoring": quality.get("scoring"),
        "definitions": {
            "likelihood": _likelihood_words(entries, systems, ngrams),
            "quality": quality.get("definitions", {}),
            "speed": _words((speed or _any_speed(entries)).get("definition")),
        },
        "real_text": figures(quality["real_text"]) if quality.get("real_text") else None,
        "systems": systems,
        "yardsticks": ngrams,
        "speed_environment": (speed or _any_speed(entries)).get("environment"),
        "points": found,
        "fronts": fronts(found),
    }


def check_comparable(entries: Sequence[Entry], allow_other_scoring: bool) -> list[str]:
    """Warnings about differences that were allowed.

    Raises:
        CelerisError: fewer than two, the same weights twice, or differences that were not allowed.
    """
    if len(entries) < 2:
        raise CelerisError(f"A comparison needs at least two checkpoints or reports, not {len(entries)}.")
    seen: dict[str, str] = {}
    for entry in entries:
        weights = str(entry.checkpoint.get("weight_hash", entry.source))
        if weights in seen:
            raise CelerisError(f"{seen[weights]} and {entry.source} have the same weights ({weights}); leave one out.")
        seen[weights] = entry.source
    for parts, get in ((SAME_DATA, lambda e: e.report.get("data", {})), (SAME_ROWS, lambda e: e.metric("likelihood"))):
        for key, words in parts.items():
            pair = _differing(entries, lambda entry, get=get, key=key: get(entry).get(key))
            if pair:
                one, other, left, right = pair
                raise CelerisError(
                    f"{one.source} and {other.source} were measured with another {words} ({left!r} and {right!r}); "
                    "evaluate them on the same data with the same settings."
                )
    pair = _differing(entries, lambda entry: entry.metric("quality").get("scoring"))
    if pair is None:
        return []
    one, other, left, right = pair
    keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
    words = "; ".join(f"{key.replace('_', ' ')}: {left.get(key)!r} and {right.get(key)!r}" for key in keys)
    if not allow_other_scoring:
        raise CelerisError(
            f"The samples of {one.source} and {other.source} were scored differently ({words}); evaluate them alike, "
            "or set allow_other_scoring=true."
        )
    return [f"NOT COMPARABLE: samples were scored differently, {one.source} and {other.source}: {words}."]


def _differing(entries: Sequence[Entry], get: Any) -> tuple[Entry, Entry, Any, Any] | None:
    """The first entry that has the value, and the first whose value is another; a missing one is not compared."""
    have = [(entry, get(entry)) for entry in entries if get(entry) is not None]
    other = next(((entry, value) for entry, value in have if value != have[0][1]), None)
    return None if other is None else (have[0][0], other[0], have[0][1], other[1])


def _speed(groups: Mapping[str, Sequence[Entry]], speed: Mapping[str, Any] | None) -> dict[str, list[dict[str, Any]]]:
    """Speed settings of each system: those of the interleaved run, else those of its first report that has some."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, runs in groups.items():
        hashes = {run.checkpoint.get("weight_hash") for run in runs}
        own = [dict(s) for s in (speed or {}).get("settings", []) if s.get("weight_hash") in hashes]
        if not own:
            own = next(([dict(s) for s in r.metric("speed")["settings"]] for r in runs if r.metric("speed")), [])
        found[name] = own
    return found


def _any_speed(entries: Sequence[Entry]) -> Mapping[str, Any]:
    return next((entry.metric("speed") for entry in entries if entry.metric("speed")), {})


def _words(text: Any) -> dict[str, str]:
    return dict(text) if isinstance(text, Mapping) else {"tokens/s": str(text)} if text else {}


def _likelihood_words(
    entries: Sequence[Entry], systems: Sequence[Mapping[str, Any]], ngrams: Mapping[str, Any]
) -> dict[str, str]:
    """Definitions, each once: of several systems' results that bear one name and differ, with the system's name."""
    shown: dict[str, dict[str, list[str]]] = {}  # name of a result → its text → whose it is
    for system in systems:
        for name, result in (system["likelihood"] or {}).get("results", {}).items():
            shown.setdefault(name, {}).setdefault(result["definition"] or "", []).append(system["name"])
    for name, result in ngrams.items():
        shown.setdefault(name, {}).setdefault(result["definition"] or "", []).append(name)
    texts: dict[str, list[str]] = {}
    for name, found in shown.items():
        for text, owners in found.items():
            texts.setdefault(text, []).append(name if len(found) == 1 else f"{name} of {' and '.join(owners)}")
    results = {name for entry in entries for name in entry.metric("likelihood").get("results", {})}
    known = entries[0].metric("likelihood").get("definitions", {})
    others = {name: text for name, text in known.items() if name not in results}
    return {" and ".join(names): text for text, names in texts.items() if text} | others
