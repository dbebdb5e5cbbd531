"""Generative perplexity of every system at one entropy: that of real text, less a little.

A window of entropies would let the setting win that stands at its cheap end, so each decoder's line through its
temperatures is read at the same place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from celeris.evaluation.comparison.groups import over_seeds
from celeris.evaluation.matched_entropy import families

BELOW = 0.1
"""Nats below real text's entropy."""
WORDS = f"gen-PPL at {BELOW:g} nat below real text's entropy"
NEEDED = ("gen_ppl", "entropy", "real_entropy_same_length")


def at_entropy(system: Mapping[str, Any]) -> dict[str, Any] | None:
    """Mean and sd over seeds of the best decoder's perplexity there, and its `label` without a temperature.

    Log-perplexity is linear in the entropy between neighbouring temperatures, seed by seed. None: no decoder has
    temperatures on both sides of it in every seed.
    """
    able = [s for s in system["settings"] if all(s["figures"].get(key) for key in NEEDED)]
    found = []
    for group in families(able).values():
        lines = {key: np.array([s["figures"][key]["values"] for s in group]) for key in NEEDED if _aligned(group)}
        if lines:
            excess = (lines["entropy"] - lines["real_entropy_same_length"]).T  # a row a seed
            values = [_read(x, y) for x, y in zip(excess, np.log(lines["gen_ppl"]).T, strict=True)]
            spread = over_seeds(values)
            if spread is not None and None not in values:
                found.append({**spread, "label": group[0]["label"].rpartition(", T ")[0]})
    return min(found, key=lambda item: item["mean"], default=None)


def _aligned(group: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every figure of every temperature is of the same number of seeds."""
    return len({len(s["figures"][key]["values"]) for s in group for key in NEEDED}) == 1


def _read(excess: np.ndarray, log: np.ndarray) -> float | None:
    order = np.argsort(excess)
    value = np.interp(-BELOW, excess[order], log[order], left=np.nan, right=np.nan)
    return None if np.isnan(value) else float(np.exp(value))
