"""What the figures of a comparison say, in sentences that follow from them and from nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from celeris.evaluation.compare_points import (
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

OWN = "celeris"
EXACT = "exact"


@dataclass(frozen=True)
class Verdict:
    """One figure of two systems.

    Attributes:
        what: the figure, in words.
        one, other: the systems.
        winner: which is better; None where the two are equal.
        noise: whether the intervals mean ± sd of the two overlap; None where no spread is known.
        sentence: the same in words.
        bound: an upper bound lost to a lower figure, which does not settle whose model predicts better.
    """

    what: str
    one: str
    other: str
    winner: str | None
    noise: bool | None
    sentence: str
    bound: bool = False


def findings(record: Mapping[str, Any]) -> dict[str, Any]:
    """`sentences`, and the `verdicts` that they were made of, of the record of `celeris.evaluation.compare.join`.

    Where our own system takes part, the sentences are those about it; the verdicts are of every two systems.
    """
    own = [system["name"] for system in record["systems"] if system["system"] == OWN]
    verdicts = [*likelihoods(record["systems"]), *best_texts(record["systems"]), *speeds(record)]
    told = [verdict for verdict in verdicts if not own or {verdict.one, verdict.other} & set(own)]
    sentences = [verdict.sentence for verdict in told]
    if any(verdict.bound for verdict in told):
        sentences.append(
            "An upper bound may lie above the model's true value: a higher bound beside a lower figure does not prove "
            "the worse model."
        )
    sentences += summaries(told, own)
    return {"sentences": sentences, "verdicts": [asdict(verdict) for verdict in verdicts]}


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
    have = [system for system in systems if headline(system)]
    for one, other in combinations(have, 2):
        a, b = headline(one), headline(other)
        assert a is not None and b is not None
        left, right = a["bits_per_character"], b["bits_per_character"]
        sign, noise = compare(left, right, more=False)
        winner = _winner(sign, one, other)
        lost = None if winner is None else b if winner == one["name"] else a
        text = " and ".join(
            f"{system['name']} {_spread(value, 3)} ({result['kind'] or 'kind not stated'})"
            for system, value, result in ((one, left, a), (other, right, b))
        )
        yield Verdict(
            "likelihood", one["name"], other["name"], winner, noise,
            f"Likelihood, bits per character: {text}; {_outcome(winner, noise, 'lower')}.",
            bound=lost is not None and lost["kind"] != EXACT,
        )  # fmt: skip


def headline(system: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The result of the likelihood that stands for the system."""
    record = system.get("likelihood")
    return record["results"].get(record["headline"]) if record else None


def best_texts(systems: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    """The best setting of every two systems by each figure of quality, whatever it costs."""
    for merit in merits(systems):
        best = [(system, found) for system in systems if (found := best_setting(system, merit))]
        for (one, a), (other, b) in combinations(best, 2):
            left, right = a["figures"][merit.key], b["figures"][merit.key]
            sign, noise = compare(left, right, merit.more)
            winner = _winner(sign, one, other)
            text = " and ".join(
                f"{system['name']} {_figure(merit, value)} ({setting['label']})"
                for system, setting, value in ((one, a, left), (other, b, right))
            )
            outcome = _outcome(winner, noise, "higher" if merit.more else "lower")
            yield Verdict(
                f"best {merit.words}", one["name"], other["name"], winner, noise,
                f"Best {merit.words} at any speed: {text}; {outcome}.",
            )  # fmt: skip


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
                    yield _faster(merit, batch, level, *(_fastest(side, merit, level) for side in sides))


def _fastest(side: Sequence[Mapping[str, Any]], merit: Merit, level: float) -> Mapping[str, Any]:
    return max((p for p in side if merit_of(p, merit) >= level), key=lambda p: p["tokens_per_second"])


def _faster(merit: Merit, batch: int, level: float, a: Mapping[str, Any], b: Mapping[str, Any]) -> Verdict:
    rates = [{"mean": p["tokens_per_second"], "sd": p["tokens_per_second_sd"]} for p in (a, b)]
    sign, noise = compare(rates[0], rates[1], more=True)
    winner = (None, a["system"], b["system"])[sign]
    text = " and ".join(
        f"{p['system']} {rate['mean']:,.0f}"
        + ("" if rate["sd"] is None else f" ± {rate['sd']:,.0f}")
        + f" ({p['label']})"
        for p, rate in zip((a, b), rates, strict=True)
    )
    high, low = max(r["mean"] for r in rates), min(r["mean"] for r in rates)
    factor = f", {high / low:.1f} times" if low > 0 and high / low >= 1.05 else ""
    bar = f"{'at least' if merit.more else 'at most'} {_plain(merit, abs(level))}"
    return Verdict(
        f"tokens/s at equal {merit.words} (batch {batch})", a["system"], b["system"], winner, noise,
        f"Fastest with {merit.words} of {bar} (the best that both reach), batch {batch}, tokens/s: {text}; "
        f"{_outcome(winner, noise, 'faster' + factor)}.",
    )  # fmt: skip


def summaries(verdicts: Sequence[Verdict], own: Sequence[str]) -> Iterator[str]:
    """Where each of `own` loses, wins and does neither, against each other system."""
    for name in own:
        for rival in dict.fromkeys(v.other if v.one == name else v.one for v in verdicts if name in (v.one, v.other)):
            pair = [v for v in verdicts if {v.one, v.other} == {name, rival}]
            settled = [v for v in pair if v.winner is not None and v.noise is not True]
            parts = {
                "loses": [v.what for v in settled if v.winner == rival],
                "wins": [v.what for v in settled if v.winner == name],
                "neither, equal or within the noise": [v.what for v in pair if v not in settled],
            }
            text = "; ".join(f"{word}: {', '.join(items) if items else 'nowhere'}" for word, items in parts.items())
            yield f"{name} against {rival}: {text}."


def _winner(sign: int, one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    return (None, one["name"], other["name"])[sign]


def _outcome(winner: str | None, noise: bool | None, word: str) -> str:
    if winner is None:
        return "equal"
    tail = {True: ", but within the noise (mean ± sd overlap)", False: ", beyond the spread", None: ""}[noise]
    unknown = " (no spread is known: one run each)" if noise is None else ""
    return f"{winner} is {word}{tail}{unknown}"


def _spread(value: Mapping[str, Any], digits: int) -> str:
    sd = "" if value.get("sd") is None else f" ± {value['sd']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{sd}"


def _figure(merit: Merit, value: Mapping[str, Any]) -> str:
    if merit.key != "known_word_share":
        return _spread(value, 3)
    return f"{value['mean']:.1%}" + ("" if value.get("sd") is None else f" ± {value['sd']:.1%}")


def _plain(merit: Merit, value: float) -> str:
    return f"{value:.1%}" if merit.key == "known_word_share" else f"{value:.3f}"
