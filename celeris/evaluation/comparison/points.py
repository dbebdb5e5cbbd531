"""Quality and speed of the same decoder joined, and which of them nothing else beats in both."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Merit(NamedTuple):
    """A figure of quality: its key, its words on an axis, and whether more is better."""

    key: str
    words: str
    more: bool


KNOWN = Merit("known_word_share", "known words", True)
MAUVE = Merit("mauve", "MAUVE", True)
SCORER = Merit("scorer_bits_per_character", "scorer's bits per character", False)
MERITS = (KNOWN, MAUVE, SCORER)
DEGENERATE = ("LOW-ENTROPY", "LOW-DIVERSITY", "LONG-RUN", "REPETITIVE")
"""Flags of texts whose other figures do not count: easy text is not good text. (Few empty texts among many harm nobody;
many make the mean entropy low.)"""


def pareto_front(places: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (x, y), more of both being better, that no other beats: none is as large in both and larger in
    one. By falling y, then falling x: O(n log n)."""
    front: list[int] = []
    for i in sorted(range(len(places)), key=lambda i: (-places[i][0], -places[i][1])):
        if not front or places[i][1] > places[front[-1]][1] or places[i] == places[front[-1]]:
            front.append(i)
    return front


def degenerate(flags: Sequence[str]) -> bool:
    """Whether these flags say that the texts are too uniform to count."""
    return any(flag.startswith(DEGENERATE) for flag in flags)


def points(systems: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One point a decoder and batch size: its figures of quality (mean and sd over seeds) and its tokens/s.

    Where speed was measured at another temperature only, that is taken: temperature changes no amount of work.
    """
    found = []
    for system in systems:
        by_key: dict[str, list[Mapping[str, Any]]] = {}
        for record in main_speed(system["speed"], system["settings"]):
            by_key.setdefault(record["key"], []).append(record)
        bare = {_without_temperature(key): records for key, records in by_key.items()}
        for setting in system["settings"]:
            key = setting["key"]
            for record in by_key.get(key) or bare.get(_without_temperature(key), []):
                found.append(
                    {
                        "system": system["name"],
                        "key": key,
                        "label": setting["label"],
                        "steps": setting.get("num_inference_steps"),
                        "temperature": setting.get("temperature"),
                        "batch": record["batch"],
                        "speed_key": record["key"],
                        "tokens_per_second": record["output_tokens_per_second"],
                        "tokens_per_second_sd": rate_sd(record),
                        "degenerate": degenerate(setting["flags"]),
                        **{merit.key: setting["figures"].get(merit.key) for merit in MERITS},
                    }
                )
    return found


def main_speed(records: Sequence[Mapping[str, Any]], settings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the prompt and output lengths measured, the shortest prompt and the samples' length (else the longest)."""
    if not records:
        return []
    prompt = min(record.get("prompt_length") or 0 for record in records)
    lengths = {record.get("length") for record in records if (record.get("prompt_length") or 0) == prompt}
    wanted = {setting.get("length") for setting in settings} & lengths
    length = max(wanted or lengths, key=lambda value: value or 0)
    return [r for r in records if (r.get("prompt_length") or 0) == prompt and r.get("length") == length]


def rate_sd(record: Mapping[str, Any]) -> float | None:
    """Standard deviation of tokens/s over the timed calls; an older record has only their seconds (first order)."""
    if "output_tokens_per_second_sd" in record:
        return record["output_tokens_per_second_sd"]
    seconds = record.get("seconds") or []
    if not isinstance(seconds, list) or len(seconds) < 2:
        return None
    return float(record["output_tokens_per_second"] * statistics.stdev(seconds) / statistics.fmean(seconds))


def batches(found: Sequence[Mapping[str, Any]]) -> list[int]:
    """The smallest and the largest batch that every system was timed with; of all, where no batch is common."""
    sizes = [{p["batch"] for p in found if p["system"] == name} for name in {p["system"] for p in found}]
    common = set.intersection(*sizes) if sizes else set()
    common = common or {p["batch"] for p in found}
    return sorted({min(common), max(common)}) if common else []


def counting(found: Sequence[Mapping[str, Any]], merit: Merit, batch: int) -> list[Mapping[str, Any]]:
    """Points of one batch size that have the figure and are not degenerate."""
    return [p for p in found if p["batch"] == batch and p[merit.key] is not None and not p["degenerate"]]


def merit_of(point: Mapping[str, Any], merit: Merit) -> float:
    """The mean of the figure, its sign such that more is better."""
    mean = float(point[merit.key]["mean"])
    return mean if merit.more else -mean


def fronts(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The Pareto front of each figure and batch size, fastest first."""
    result = []
    for batch in batches(found):
        for merit in MERITS:
            able = counting(found, merit, batch)
            chosen = pareto_front([(p["tokens_per_second"], merit_of(p, merit)) for p in able])
            if chosen:
                keys = [{"system": able[i]["system"], "key": able[i]["key"]} for i in chosen]
                result.append({"batch": batch, "figure": merit.key, "front": keys})
    return result


def _without_temperature(key: str) -> str:
    head, _, last = key.rpartition("/")
    return head if head and last[:1] == "t" and last[1:].replace(".", "", 1).isdigit() else key
