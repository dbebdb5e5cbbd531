"""Tables of two systems each: every figure that both have, whose is better, and whether that is more than noise."""

from collections.abc import Mapping
from typing import Any

from celeris.evaluation.comparison.matched import WORDS, at_entropy
from celeris.evaluation.comparison.tables import titled
from celeris.evaluation.comparison.words import told
from celeris.evaluation.record import Table

OUTCOMES = {True: "within the noise", False: "beyond the noise", None: "no spread known"}


def head_to_head(record: Mapping[str, Any]) -> list[Table]:
    """One table a pair with our own system in it; of every pair, where none is ours."""
    systems = {system["name"]: system for system in record["systems"]}
    found = []
    for pair, verdicts in told(record["systems"], record["findings"]["verdicts"]).items():
        rows = []
        for item in verdicts:
            sides = {item["one"]: item["left"], item["other"]: item["right"]}
            rows.append(
                [
                    f"tokens/s with {item['level']}" if item["level"] else item["what"],
                    *(_side(systems[name], sides[name], item["form"]) for name in pair),
                    item["winner"] or "equal",
                    _times(item),
                    OUTCOMES[item["noise"]] if item["winner"] else "–",
                ]
            )
        found.append(Table(f"{pair[0]} against {pair[1]}", ["", *pair, "better", "times", "difference"], rows,
                           _missing(pair, systems)))  # fmt: skip
    return found


def _side(system: Mapping[str, Any], side: Mapping[str, Any], form: str) -> str:
    """Value, spread, and the setting or kind that it is of."""
    value = format(side["mean"], form) + ("" if side["sd"] is None else f" ± {format(side['sd'], form)}")
    name = system["name"]
    of = side["kind"] if side["setting"] is None else titled(system, side["setting"]).removeprefix(name).lstrip(",: ")
    return f"{value} ({of})" if of else value


def _times(item: Mapping[str, Any]) -> str:
    """How many times as fast the faster is."""
    low, high = sorted((item["left"]["mean"], item["right"]["mean"]))
    return f"{high / low:.1f}" if item["figure"] == "tokens_per_second" and low > 0 else "–"


def _missing(pair: tuple[str, str], systems: Mapping[str, Any]) -> list[str]:
    """Who cannot be read at the entropy where perplexities are compared, where they were measured at all."""
    scored = [n for n in pair if any(s["figures"].get("gen_ppl") for s in systems[n]["settings"])]
    without = [name for name in scored if at_entropy(systems[name]) is None]
    if len(scored) < 2 or not without:
        return []
    names = f"neither {pair[0]} nor {pair[1]} has" if len(without) == 2 else f"{without[0]} has not"
    return [f"No {WORDS}: {names} temperatures on both sides of it in every seed."]
