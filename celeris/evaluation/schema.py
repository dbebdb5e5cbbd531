"""The JSON schemas of report.json and comparison.json, which are files beside this one."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from celeris.errors import CelerisError

REPORT, COMPARISON = "report", "comparison"


@cache
def schema(name: str) -> dict[str, Any]:
    """The schema called `name` (REPORT or COMPARISON), JSON Schema 2020-12."""
    found = json.loads(Path(__file__).with_name(f"{name}.schema.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def problem(record: Any, name: str) -> str | None:
    """The first way in which `record` is not what the schema says, with its place; None when it fits.

    Raises:
        CelerisError: jsonschema is not installed.
    """
    try:
        import jsonschema
    except ImportError as error:
        raise CelerisError("Checking a file against its schema needs jsonschema; pip install jsonschema.") from error
    wrong = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema(name)).iter_errors(record))
    return None if wrong is None else f"{wrong.json_path}: {wrong.message[:300]}"


def check(record: Any, name: str) -> None:
    """Refuse to write a record that breaks its schema; where jsonschema is not installed nothing is checked.

    Raises:
        CelerisError: it does not fit.
    """
    try:
        import jsonschema  # noqa: F401
    except ImportError:
        return
    if found := problem(record, name):
        raise CelerisError(f"The {name} does not fit {name}.schema.json at {found}; a metric returned another record.")
