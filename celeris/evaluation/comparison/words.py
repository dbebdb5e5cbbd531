"""What the figures of a comparison say: verdicts that follow from them and from nothing else, and their summaries."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from celeris.evaluation.comparison.groups import OWN
from celeris.evaluation.comparison.matched import WORDS, at_entropy
from celeris.evaluation.comparison.points import (
    KNOWN,
    MAUVE,
    MERITS,
    SCORER,
    Merit,
    batches,
    counting,
    degenerate,
    merit_of,
)
from celeris.evaluation.estimates import EXACT

UPPER = (
    "An upper bound may lie above the model's true value: a higher bound beside a lower figure does not prove the "
    "worse model."
)


@dataclass(frozen=True)
class Side:
    """What one of two systems has: mean, sd (None: not known), the decoder's label, the kind of a likelihood."""

    mean: float
    sd: float | None
    setting: str | None = None
    kind: str | None = None


@dataclass(frozen=True)
class Verdict:
    """One figure of two systems.

    Attributes:
        figure: its key, or "tokens_per_second".
        what: the figure, in words.
        one, other: the systems.
        left, right: their values.
        more: whether more is better.
        form: format of the values.
        level: of tokens/s: the quality that both reach, and the batch size, in words.
        winner: which is better; None where the two are equal.
        noise: whether the intervals mean ± sd of the two overlap; None where no spread is known.
        bound: an upper bound lost to a lower figure, which does not settle whose model predicts better.
    """

    figure: str
    what: str
    one: str
    other: str
    left: Side
    right: Side
    more: bool
    form: str
    level: str | None
    winner: str | None
    noise: bool | None
    bound: bool


def verdict(
    figure: str, what: str, names: tuple[str, str], sides: tuple[Side, Side], *, more: bool, form: str,
    level: str | None = None,
) -> Verdict:  # fmt: skip
    """Who is better, and whether that is more than the spread."""
    left, right = sides
    sign, noise = compare(asdict(left), asdict(right), more)
    lost = (None, right, left)[sign]
    bound = lost is not None and lost.kind is not None and lost.kind != EXACT
    return Verdict(figure, what, *names, left, right, more, form, level, (None, *names)[sign], noise, bound)


def findings(record: Mapping[str, Any]) -> dict[str, Any]:
    """`verdicts` of every two systems of the record of `celeris.evaluation.comparison.join`, and the `sentences` that
    sum up those with our own system in them."""
    systems = record["systems"]
    verdicts = [*likelihoods(systems), *best_texts(systems), *perplexities(systems), *speeds(record)]
    found = [asdict(item) for item in verdicts]
    pairs = told(systems, found)
    sentences = [summary(*names, some) for names, some in pairs.items()]
    if any(item["bound"] for some in pairs.values() for item in some):
        sentences.append(UPPER)
    return {"sentences": sentences, "verdicts": found}


def told(
    systems: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """(ours, another) → the verdicts of the two; every two systems, where none is ours."""
    names = [system["name"] for system in systems]
    own = [system["name"] for system in systems if system["system"] == OWN]
    pairs = [(a, b) for a, b in combinations(names, 2) if not own or a in own or b in own]
    pairs = [(b, a) if b in own and a not in own else (a, b) for a, b in pairs]
    found = {pair: [v for v in verdicts if {v["one"], v["other"]} == set(pair)] for pair in pairs}
    return {pair: some for pair, some in found.items() if some}


def compare(one: Mapping[str, Any], other: Mapping[str, Any], more: bool) -> tuple[int, bool | None]:
    """(1: `one` is better, −1: `other` is, 0: equal; whether mean ± sd overlap, None when neither has a spread).

    A spread that only one of the two has is taken as it is, the other's as nothing.
    """
    difference = (one["mean"] - other["mean"]) * (1 if more else -1)
    spreads = [item["sd"] for item in (one, other) if item.get("sd") is not None]
    sign = (difference > 0) - (difference < 0)
    return sign, abs(difference) <= sum(spreads) if spreads else None


def likelihoods(systems: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    """The headline likelihoods of every two systems, in bits per character."""
    have = [(system["name"], result) for system in systems if (result := headline(system))]
    for (one, a), (other, b) in combinations(have, 2):
        left, right = (Side(r["bits_per_character"]["mean"], r["bits_per_character"]["sd"], kind=r["kind"])
                       for r in (a, b))  # fmt: skip
        yield verdict("bits_per_character", "likelihood", (one, other), (left, right), more=False, form=".3f")


def headline(system: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The result of the likelihood that stands for the system; None where there is none in bits per character."""
    record = system.get("likelihood")
    result = record["results"].get(record["headline"]) if record else None
    return result if result and result["bits_per_character"] else None


def best_texts(systems: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    """The best setting of every two systems by each figure of quality, whatever it costs."""
    for merit in merits(systems):
        best = [(system["name"], found) for system in systems if (found := best_setting(system, merit))]
        for (one, a), (other, b) in combinations(best, 2):
            left, right = (
                Side(s["figures"][merit.key]["mean"], s["figures"][merit.key]["sd"], s["label"]) for s in (a, b)
            )
            yield verdict(
                merit.key, f"best {merit.words}", (one, other), (left, right), more=merit.more, form=_form(merit)
            )  # fmt: skip


def perplexities(systems: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    """Of every two systems, the best decoder's perplexity at one entropy."""
    have = [(system["name"], found) for system in systems if (found := at_entropy(system))]
    for (one, a), (other, b) in combinations(have, 2):
        left, right = (Side(found["mean"], found["sd"], found["label"]) for found in (a, b))
        yield verdict("gen_ppl", WORDS, (one, other), (left, right), more=False, form=".1f")


def merits(systems: Sequence[Mapping[str, Any]]) -> list[Merit]:
    """Known words, and MAUVE where it was measured, else the scorer's bits per character."""
    have = [m for m in MERITS if any(s["figures"].get(m.key) for system in systems for s in system["settings"])]
    return [merit for merit in (KNOWN, MAUVE if MAUVE in have else SCORER) if merit in have]


def best_setting(system: Mapping[str, Any], merit: Merit) -> Mapping[str, Any] | None:
    """The setting with the best mean that no flag disqualifies."""
    able = [s for s in system["settings"] if s["figures"].get(merit.key) and not degenerate(s["flags"])]
    sign = 1 if merit.more else -1
    return max(able, key=lambda s: sign * s["figures"][merit.key]["mean"], default=None)


def speeds(record: Mapping[str, Any]) -> Iterator[Verdict]:
    """Of every two systems, whose fastest setting is faster among those that reach what both of them reach."""
    names = [system["name"] for system in record["systems"]]
    for merit in merits(record["systems"]):
        for batch in batches(record["points"]):
            able = counting(record["points"], merit, batch)
            for one, other in combinations(names, 2):
                sides = [[p for p in able if p["system"] == name] for name in (one, other)]
                if all(sides):
                    level = min(max(merit_of(p, merit) for p in side) for side in sides)
                    fastest = [_fastest(side, merit, level) for side in sides]
                    left, right = (Side(p["tokens_per_second"], p["tokens_per_second_sd"], p["label"]) for p in fastest)
                    yield verdict(
                        "tokens_per_second", f"tokens/s at equal {merit.words} (batch {batch})", (one, other),
                        (left, right), more=True, form=",.0f",
                        level=f"{merit.words} {'≥' if merit.more else '≤'} {abs(level):{_form(merit)}}, batch {batch}",
                    )  # fmt: skip


def _fastest(side: Sequence[Mapping[str, Any]], merit: Merit, level: float) -> Mapping[str, Any]:
    return max((p for p in side if merit_of(p, merit) >= level), key=lambda p: p["tokens_per_second"])


def summary(one: str, other: str, verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Where `one` loses against `other`, where it wins, and where neither does."""
    settled = [v for v in verdicts if v["winner"] is not None and v["noise"] is not True]
    parts = {
        "loses": [v for v in settled if v["winner"] == other],
        "wins": [v for v in settled if v["winner"] == one],
        "neither, equal or within the noise": [v for v in verdicts if v not in settled],
    }
    text = "; ".join(f"{word}: {_listed(items)}" for word, items in parts.items())
    unknown = [v for v in settled if v["noise"] is None]
    return f"{one} against {other}: {text}." + (f" No spread is known of: {_listed(unknown)}." if unknown else "")


def _listed(verdicts: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(v["what"] for v in verdicts) or "nowhere"


def _form(merit: Merit) -> str:
    return ".1%" if merit.key == "known_word_share" else ".3f"
