"""What stands for itself in a comparison: the next-token head of a model apart from it, and n-grams apart from all."""

from collections.abc import Mapping, Sequence
from typing import Any

from celeris.evaluation.comparison.groups import OWN
from celeris.evaluation.estimates import NEXT_TOKEN
from celeris.evaluation.heldout import UNIGRAM

BY_TOKEN = "autoregressive"
"""`Decoder.setting["decoder"]` of a next-token head."""


def contenders(systems: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The systems, ours first, each followed by its next-token head as one of its own: a diffusion model neither wins
    nor loses by what another decoder of the same weights writes."""
    found = [part for system in systems for part in apart(system)]
    return sorted(found, key=lambda system: not system["system"].startswith(OWN))


def apart(system: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`system` without what its next-token head has, and that head; `system` as it is, where one of them is empty."""
    heads, others = ({key: [s for s in system[key] if (s.get("decoder") == BY_TOKEN) == by_token]
                      for key in ("settings", "speed")} for by_token in (True, False))  # fmt: skip
    results = dict((system["likelihood"] or {}).get("results", {}))
    own = results.pop(NEXT_TOKEN, None)
    if not (own or any(heads.values())) or not (results or any(others.values())):
        return [dict(system)]
    rest = {**system["likelihood"], "results": results} if results else None
    head = {
        **system,
        "name": f"{system['name']}, {NEXT_TOKEN}",
        "system": f"{system['system']}, {NEXT_TOKEN}",
        "part_of": system["name"],
        "likelihood": {"headline": NEXT_TOKEN, "results": {NEXT_TOKEN: own}} if own else None,
        **heads,
    }
    return [{**system, "likelihood": rest, **others}, head]


def yardsticks(systems: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Take the n-grams, which know the text and no model, out of `systems`; they, and warnings where they differ."""
    found: dict[str, Any] = {}
    warnings = []
    for system in systems:
        record = system["likelihood"]
        if record is None:
            continue
        names = [name for name in record["results"] if name == UNIGRAM or name.endswith("-gram")]
        own = {name: record["results"][name] for name in names}
        kept = {name: result for name, result in record["results"].items() if name not in own}
        system["likelihood"] = {**record, "results": kept} if kept else None
        for name, result in own.items():
            first = found.setdefault(name, result)
            one, other = (item["nats_per_token"] and item["nats_per_token"]["mean"] for item in (first, result))
            if one is not None and other is not None and abs(one - other) > 1e-6:
                warnings.append(
                    f"The {name} of {system['name']} has {other:.4f} nats/token, not {one:.4f} as the one shown: it "
                    "learnt from another share of the training rows."
                )
    return found, warnings
