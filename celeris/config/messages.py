"""Hydra's, OmegaConf's and submitit's errors, each in one sentence."""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, InstantiationException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from celeris.config.nearest import hint
from celeris.errors import CelerisError

Compose = Callable[[list[str]], DictConfig]


def explain(error: BaseException, overrides: Sequence[str], compose: Compose) -> str:
    """One sentence for a mistake that Hydra, OmegaConf or Celeris found.

    Args:
        error: what was raised.
        overrides: the words of the command line.
        compose: composes the same configuration from other words; used to find which keys there are.
    """
    if own := _own(error):
        return str(own)
    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        near = hint(name, error.options)
        listed = f" (There are: {', '.join(error.options)}.)" if near.endswith("?") else ""
        return f"There is no {group} {name!r}; {near}{listed}"
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if isinstance(cause, ConfigAttributeError | ConfigKeyError):
        return _unknown_key(str(cause.full_key), overrides, compose)
    if isinstance(cause, MissingMandatoryValue):
        return f"{cause.full_key} has no value; give one with {cause.full_key}=…"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if _raised_in(error, "submitit"):  # what a job printed follows, its error last
        return f"The launcher: {' '.join(dict.fromkeys([lines[0], lines[-1]]))} (docs/clusters.md)"
    if isinstance(error, InstantiationException):  # "Error in call to target 'x':", the error, "full_key: y"
        return f"{_tail(lines, 'full_key: ')}{' '.join(lines[:2])}"
    if lines[0].startswith("Ambiguous value"):
        word = lines[0].split("'")[1]
        key, _, value = word.partition("=")
        return f"{word!r} has a comma: write '{key}=[{value}]' for a list, or add -m for one run each."
    if isinstance(cause, OmegaConfBaseException):
        return f"{cause.full_key or ''}: {str(cause).splitlines()[0]}".removeprefix(": ")
    return " ".join(lines[:2])


def is_mistake(error: BaseException) -> bool:
    """Whether this is a user's mistake (one sentence) rather than a defect (a traceback)."""
    if isinstance(error, HydraException | OmegaConfBaseException | CelerisError):
        return True
    if _raised_in(error, "submitit"):  # no SLURM here, sbatch refuses, a job was killed
        return True
    return isinstance(error, ValueError) and _raised_in(error, "hydra")  # about what it was told


def _raised_in(error: BaseException, package: str) -> bool:
    places = traceback.extract_tb(error.__traceback__)
    return bool(places) and package in Path(places[-1].filename).parts


def _own(error: BaseException | None) -> CelerisError | None:
    while error is not None and not isinstance(error, CelerisError):
        error = error.__cause__
    return error


def _unknown_key(full_key: str, overrides: Sequence[str], compose: Compose) -> str:
    """`Unknown key trainer.max_step; did you mean max_steps?` with the keys that stand beside it."""
    parser = OverridesParser.create()
    keep = [word for word in overrides if not _same_key(parser.parse_override(word).key_or_group, full_key)]
    parent, _, name = full_key.rpartition(".")
    try:
        config = compose(keep)
        node = OmegaConf.select(config, parent) if parent else config
        keys = [str(key) for key in node if not str(key).startswith("_")]
    except (HydraException, OmegaConfBaseException, TypeError):
        keys = []
    return f"Unknown key {full_key}; {hint(name, keys)}"


def _same_key(key: str, full_key: str) -> bool:
    return key == full_key or key.startswith(f"{full_key}.")


def _tail(lines: Sequence[str], prefix: str) -> str:
    found = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    return f"{found[-1]}: " if found else ""
