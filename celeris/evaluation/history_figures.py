"""What one line of a history remembers of a report: its figures, how noisy each is, and what must be alike for two
lines to be compared.

A line has groups, one for each thing that was measured in one way: the likelihood that stands for the model, the texts
of one decoder, the speed of one decoder at one batch and length. A group has `conditions`, which two lines must share,
and `figures`, each with its standard error, in words how that was found, and which direction is better.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

LOWER, HIGHER, NEARER_1 = "lower", "higher", "nearer 1"

Groups = dict[str, dict[str, Any]]

_WORD = re.compile(r"[^\W\d_]{2,}")
_SPEED_CONDITIONS = ("batch", "prompt_length", "length")
_DECODING = ("solver", "temperature")  # the rest is in the key, or is the model's own


def groups_of(report: Mapping[str, Any]) -> Groups:
    """The groups of a report as `Report.to_dict` gives it; metrics that were not measured have none."""
    metrics = report["metrics"]
    found: Groups = {}
    if "likelihood" in metrics:
        found |= _likelihood(metrics["likelihood"])
    if "quality" in metrics:
        found |= quality_groups(metrics["quality"])
    if "speed" in metrics:
        found |= _speed(metrics["speed"], report["environment"], report["checkpoint"])
    return {name: group for name, group in found.items() if group["figures"]}


def _likelihood(record: Mapping[str, Any]) -> Groups:
    name = record.get("headline", "bound")
    result = record["results"][name]
    figure = _figure(
        result["bits_per_character"],
        result.get("standard_error_bits_per_character"),
        LOWER,
        "over held-out rows taken as independent; two checkpoints read the same rows, so it errs on the safe side",
    )
    conditions = {
        **{key: record.get(key) for key in ("rows", "row_length", "tokenizer")},
        "tokens": result.get("tokens"),
        "kind": result.get("kind", name),
    }
    return {f"likelihood {name}": _group(conditions, {"bits_per_character": figure})}


def quality_groups(record: Mapping[str, Any]) -> Groups:
    """Two groups a decoder of a quality record: its texts by themselves, and what the scorer made of them."""
    found: Groups = {}
    scoring = record.get("scoring") or {}
    for entry in record["settings"]:
        texts = int(entry["num_samples"])
        over_texts = f"over {texts} texts, taken as independent"
        writing = {"length": entry["length"], **{key: entry[key] for key in _DECODING if key in entry}}
        figures = {
            "entropy_ratio": _figure(entry.get("entropy_ratio"), entropy_ratio_error(entry), NEARER_1, over_texts),
            "known_word_share": _figure(entry.get("known_word_share"), *known_words_error(entry, over_texts)),
        }
        group = _group({"real_text": scoring.get("real_text"), **writing}, figures)
        found[f"quality {entry['key']}"] = {**group, "num_samples": texts, "scoring": dict(scoring)}
        over_scored = f"over {entry.get('texts_scored', texts)} scored texts, taken as independent"
        scored = {
            name: _figure(entry.get(name), entry.get(f"{name}_standard_error"), LOWER, over_scored)
            for name in ("gen_ppl", "scorer_bits_per_character")
        }
        found[f"scored {entry['key']}"] = _group({"scoring": dict(scoring), **writing}, scored)
    return found


def entropy_ratio_error(entry: Mapping[str, Any]) -> float | None:
    """s.e. of entropy/real entropy: the sd of the texts' entropies / √texts; real text is the same for all lines."""
    spread, ratio, mean = entry.get("entropy_sd"), entry.get("entropy_ratio"), entry.get("entropy")
    texts = int(entry["num_samples"])
    if spread is None or ratio is None or mean is None or texts < 2:
        return None
    return spread / math.sqrt(texts) * ratio / mean if mean else 0.0  # text of one token, or none at all


def known_words_error(entry: Mapping[str, Any], over_texts: str) -> tuple[float | None, str, str]:
    """s.e. of the known-word share, its direction, and how the error was found.

    Over texts, as words of one text are not independent, and no less than that of so many independent words, which is
    not 0 where all words are known.
    """
    words, share = sum(map(judged_words, entry.get("texts") or [])), entry.get("known_word_share")
    if share is None or not words:
        return None, HIGHER, ""
    smoothed = (share * words + 2) / (words + 4)  # Agresti–Coull
    binomial = math.sqrt(smoothed * (1 - smoothed) / words)
    by_text = entry.get("known_word_share_standard_error") or 0.0
    return max(by_text, binomial), HIGHER, f"{over_texts}, at least binomial over {words} words"


def judged_words(text: str) -> int:
    """Words of at least 2 letters that do not touch an end of the text: those that the known-word share counts."""
    return sum(1 for word in _WORD.finditer(text) if word.start() > 0 and word.end() < len(text))


def _speed(record: Mapping[str, Any], environment: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> Groups:
    """Tokens/s; the noise is the sd over repeats, not of their mean: repeats in one process share its luck."""
    machine = {
        "device": checkpoint.get("device"),
        "precision": checkpoint.get("precision"),
        "threads": environment.get("threads"),
        "platform": environment.get("platform"),
        **{key: value for key, value in (record.get("environment") or {}).items() if key in ("cpu", "cores")},
    }
    found: Groups = {}
    for entry in record["settings"]:
        if "key" not in entry:
            continue
        conditions = {**machine, **{key: entry[key] for key in (*_SPEED_CONDITIONS, *_DECODING) if key in entry}}
        repeats = len(entry.get("seconds") or [])
        spread = entry.get("output_tokens_per_second_sd")
        figure = _figure(
            entry.get("output_tokens_per_second"), spread, HIGHER, f"sd over {repeats} repeats in one process"
        )
        where = ", ".join(f"{word} {entry[key]}" for key, word in _PLACES.items() if key in entry)
        found[f"speed {entry['key']}" + (f" ({where})" if where else "")] = _group(
            conditions, {"tokens_per_second": figure}
        )
    return found


_PLACES = {"batch": "batch", "prompt_length": "prompt", "length": "length"}


def _group(conditions: dict[str, Any], figures: dict[str, dict[str, Any] | None]) -> dict[str, Any]:
    return {"conditions": conditions, "figures": {name: figure for name, figure in figures.items() if figure}}


def _figure(value: Any, error: float | None, better: str, noise: str) -> dict[str, Any] | None:
    """None where there is no value; an error that is not a finite number is none."""
    if value is None or not math.isfinite(value):
        return None
    known = error is not None and math.isfinite(error)
    return {"value": value, "error": error if known else None, "better": better, "noise": noise if known else "unknown"}


def show(figure: Mapping[str, Any]) -> str:
    """ "1.234 ± 0.005"."""
    value, error = figure["value"], figure["error"]
    form = ",.0f" if abs(value) >= 1000 else ".1f" if abs(value) >= 100 else ".3f"
    return f"{value:{form}} ± " + ("?" if error is None else f"{error:{form if error >= 0.001 else '.1g'}}")


def choices_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """What a quality metric must be told to write the texts of `line` again, by the names of its arguments; empty
    where the line has no quality.

    Keys are "system/steps_4/solver/t0.7", "system/steps_64/t0.7" or "system/t1" (token by token).
    """
    keys = [name.split(" ", 1)[1] for name in line["groups"] if name.startswith("quality ")]
    if not keys:
        return {}
    group = line["groups"][f"quality {keys[0]}"]
    found: dict[str, set[Any]] = {name: set() for name in ("steps", "temperatures", "by_token", "solvers")}
    for key in keys:
        _, *middle, temperature = key.split("/")
        steps = [int(part.removeprefix("steps_")) for part in middle if part.startswith("steps_")]
        found["steps"].update(steps)
        found["temperatures" if steps else "by_token"].add(float(temperature.removeprefix("t")))
        found["solvers"].update(part for part in middle if steps and not part.startswith("steps_"))
    masked = line["system"] == "mdlm"
    return {
        "masked_steps" if masked else "num_inference_steps": sorted(found["steps"]),
        "temperatures": sorted(found["temperatures"]),
        "autoregressive_temperatures": sorted(found["by_token"]),
        "solvers": sorted(found["solvers"]),
        "length": group["conditions"]["length"],
        "score_characters": group["scoring"].get("score_characters"),
        "num_samples": group["num_samples"],
    }
