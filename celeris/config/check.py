"""Refuse keys that nothing would read.

A composed configuration is checked against what will use it: the root against its dataclass in `schema.py`, every node
with a `_target_` against the signature of that class. So a key that is misspelt in an experiment file, or added with
`+`, ends in a sentence instead of being ignored.
"""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from hydra.conf import HydraConf
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from celeris.config.nearest import hint
from celeris.errors import CelerisError

HYDRA_WORDS = frozenset({"_target_", "_partial_", "_convert_", "_recursive_", "_args_"})


def check_config(config: DictConfig, schema: type) -> None:
    """Check the composed `config` against the dataclass `schema` and every target's signature, and set its types.

    Raises:
        CelerisError: names the first unknown key and the nearest known one, or the value of a wrong type.
    """
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    known = [field.name for field in fields(schema)]
    _refuse_unknown(plain, known, "")
    for field in fields(schema):
        if isinstance(node := plain.get(field.name), dict):
            if field.metadata.get("parts"):
                _check_parts(node, field.name, field.metadata["parts"])
            _check_targets(node, field.name)
    missing = sorted(OmegaConf.missing_keys(config), key=lambda key: (key.count("."), key))
    if missing:
        raise CelerisError(f"{missing[0]} has no value; give one with {missing[0]}=…")
    scalars = {key: value for key, value in plain.items() if not isinstance(value, dict | list)}
    try:
        typed = OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(schema), scalars))
        assert isinstance(typed, dict)
        for key in scalars:
            config[key] = typed[key]  # temperature=1 becomes 1.0; interpolations stay as they are
    except OmegaConfBaseException as error:
        raise CelerisError(f"{error.full_key}={plain.get(str(error.full_key))!r}: {_first_line(error)}") from error


def check_hydra(config: Any) -> None:
    """The same for the `hydra.*` node, whose own check lets keys added with `+` pass."""
    known = OmegaConf.to_container(OmegaConf.structured(HydraConf()))
    assert isinstance(known, dict)
    _refuse_unknown(config, [*known, "env"], "hydra.")
    for key in ("run", "sweep", "job", "help"):
        _refuse_unknown(config[key], known[key], f"hydra.{key}.")


def target_parameters(target: str) -> list[str] | None:
    """Names of the arguments that `target` takes, or None where it takes any (`**kwargs`).

    Raises:
        CelerisError: there is no such class or function.
    """
    try:
        parameters = inspect.signature(_locate(target)).parameters
    except (ImportError, AttributeError, ValueError) as error:
        raise CelerisError(f"The target {target} does not exist; {_advice(target)}") from error
    if any(item.kind is item.VAR_KEYWORD for item in parameters.values()):
        return None
    return list(parameters)


def _advice(target: str) -> str:
    if target.startswith("celeris."):
        return "check its spelling."
    return "check its spelling, and name the folder of your own code with plugins=[…]."


def _locate(target: str) -> Any:
    """The object with this dotted name: a function or class of a module, or a method of a class."""
    module, _, name = target.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module or "." not in module:
            raise
        return getattr(_locate(module), name)


def _check_parts(node: Mapping[str, Any], path: str, kind: str) -> None:
    """Every entry of a named collection (callbacks, loggers) is a record with a `_target_`, or null to leave it out."""
    parts = [name for name, value in node.items() if isinstance(value, dict) and "_target_" in value]
    for name, value in node.items():
        if value is not None and name not in parts:
            raise CelerisError(f"{path}.{name} is no {kind} (it has no _target_); {hint(name, parts)}")


def _check_targets(node: Any, path: str) -> None:
    if isinstance(node, list):
        for place, item in enumerate(node):
            _check_targets(item, f"{path}[{place}]")
    if not isinstance(node, dict):
        return
    if "_target_" in node:
        known = target_parameters(str(node["_target_"]))
        if known is not None:
            _refuse_unknown({k: v for k, v in node.items() if k not in HYDRA_WORDS}, known, f"{path}.")
    for key, value in node.items():
        _check_targets(value, f"{path}.{key}")


def _refuse_unknown(node: Any, known: Any, prefix: str) -> None:
    for key in node:
        if key not in known:
            raise CelerisError(f"Unknown key {prefix}{key}; {hint(key, known)}")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") + "."
