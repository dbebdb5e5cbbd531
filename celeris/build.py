"""Build objects from plain `{"_target_": "celeris…", …}` records.

`config.json` of an export is data from strangers: only classes of this package, and of the modules that the user has
said to trust, can be named there, so loading a checkpoint never runs anybody else's code.
"""

from importlib import import_module
from typing import Any

from celeris.errors import CelerisError

TRUSTED = {"celeris"}
"""Top-level modules whose classes a record may name."""


def trust(*modules: str) -> None:
    """Allow records to name classes of these top-level modules, in this process."""
    TRUSTED.update(modules)


def build(spec: Any, **overrides: Any) -> Any:
    """Recursively build `spec`: a mapping with `_target_` becomes that class called with the other keys.

    Args:
        spec: plain containers (dict, list, str, numbers); anything without `_target_` is returned as it is.
        overrides: extra keyword arguments of the outermost call.

    Raises:
        CelerisError: the target is not inside `celeris` or a trusted module, does not exist, or refuses its arguments.
    """
    if isinstance(spec, list):
        return [build(item) for item in spec]
    if not isinstance(spec, dict):
        return spec
    values = {key: build(value) for key, value in spec.items() if key != "_target_"}
    if "_target_" not in spec:
        return values
    target = spec["_target_"]
    module, _, name = target.rpartition(".")
    if not module or _top(module) not in TRUSTED:
        raise _outside(target)
    try:
        factory = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CelerisError(f"The target {target!r} does not exist ({error}); check its spelling.") from error
    if _top(getattr(factory, "__module__", None) or "") not in TRUSTED:  # imported there, but somebody else's
        raise _outside(target)
    try:
        return factory(**{**values, **overrides})
    except TypeError as error:
        raise CelerisError(f"{target} does not take these arguments: {error}.") from error


def _top(module: str) -> str:
    return module.partition(".")[0]


def _outside(target: str) -> CelerisError:
    return CelerisError(
        f"The target {target!r} is outside the package; if you trust that code, name its folder or module with "
        "plugins=[…] (in Python: celeris.build.trust)."
    )
