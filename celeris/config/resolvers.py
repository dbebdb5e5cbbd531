"""The few names that configurations may compute: small, named, and none of them `eval`."""

import math
from pathlib import Path

from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[2]
"""Folder of the root scripts, which holds `configs/` and, unless told otherwise, `runs/`."""


def register_resolvers() -> None:
    """Make the names below known to OmegaConf. Calling it again changes nothing."""
    OmegaConf.register_new_resolver("root_dir", lambda: str(ROOT), replace=True)
    OmegaConf.register_new_resolver("gumbel_mu", gumbel_mu, replace=True)
    OmegaConf.register_new_resolver("rows_of_run", rows_of_run, replace=True)


def gumbel_mu(dim: int, nats: float) -> float:
    """Where a token of `nats` conditional entropy is decided: ln D − ln 2h, from the capacity (D/2)·SNR of the code."""
    return math.log(dim) - math.log(2 * nats)


def rows_of_run(share: float, steps: int, batch: int) -> int:
    """Samples in the first `share` of a run's optimizer steps."""
    return round(share * steps) * batch
