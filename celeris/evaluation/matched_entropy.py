"""Generative perplexity at equal entropy.

A lower temperature buys perplexity with entropy, so decoders compare only where their entropies are the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from celeris.evaluation.record import Table

BELOW_REAL = (0.0, 0.1)
"""Nats below the real text's entropy at which perplexities are compared."""


def at_matched_entropy(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Perplexity of each decoder at real text's entropy, from what its temperatures gave.

    Between the two temperatures whose entropies enclose the wanted one, the logarithm of the perplexity is linear in
    the entropy. Outside of what was measured there is no figure (None).

    Args:
        settings: records of the report; those without a perplexity are left out.

    Returns:
        One record a decoder that was measured at two temperatures or more: the temperature whose entropy is nearest,
        that setting's entropy minus real text's of the same lengths (nats), and nats below real text -> perplexity.
    """
    found = []
    for key, group in families([setting for setting in settings if setting["gen_ppl"] is not None]).items():
        if len(group) < 2:
            continue
        group = sorted(group, key=_excess)
        nearest = min(group, key=lambda setting: abs(_excess(setting)))
        excess = [_excess(setting) for setting in group]
        logs = np.log([setting["gen_ppl"] for setting in group])
        at = [np.interp(-below, excess, logs, left=np.nan, right=np.nan) for below in BELOW_REAL]
        found.append(
            {
                "key": key,
                "label": group[0]["label"].rpartition(", T ")[0],
                "nearest_temperature": nearest["temperature"],
                "nearest_excess": _excess(nearest),
                "gen_ppl": {
                    f"{below:g}": None if np.isnan(value) else float(np.exp(value))
                    for below, value in zip(BELOW_REAL, at, strict=True)
                },
            }
        )
    return found


def families(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Settings that differ in nothing but their temperature, by their key without it."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for setting in settings:
        groups.setdefault(setting["key"].rpartition("/t")[0], []).append(setting)
    return groups


def _excess(setting: Mapping[str, Any]) -> float:
    return float(setting["entropy"] - setting["real_entropy_same_length"])


def matched_table(matched: Sequence[Mapping[str, Any]]) -> Table:
    """The records of `at_matched_entropy`, one a row."""
    rows = [
        [
            record["label"],
            *("–" if value is None else f"{value:.1f}" for value in record["gen_ppl"].values()),
            f"{record['nearest_temperature']:g}",
            f"{record['nearest_excess']:+.2f}",
        ]
        for record in matched
    ]
    columns = ["", *(f"at −{below:g}" if below else "at real" for below in BELOW_REAL), "nearest T", "its entropy"]
    notes = [
        "at …: gen-PPL where the entropy equals real text's, or lies so many nats below it, interpolated between "
        "temperatures; –: none was measured on either side.",
        "nearest T: the temperature whose entropy is nearest to real text's; its entropy: minus real text's, nats.",
    ]
    return Table("Generative perplexity at real text's entropy", columns, rows, notes)
