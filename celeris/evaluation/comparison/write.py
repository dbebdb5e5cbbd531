"""The files of a comparison."""

import json
import os
from pathlib import Path
from typing import Any

from celeris.evaluation.ablation_page import join_text
from celeris.evaluation.comparison.page import MARK, TITLE, comparison_page
from celeris.evaluation.comparison.plots import pictures
from celeris.evaluation.html import to_html
from celeris.evaluation.report import finite
from celeris.evaluation.schema import COMPARISON, check


def write_comparison(record: dict[str, Any], folder: Path) -> dict[str, str]:
    """Write comparison.json, .md, .html and the pictures into `folder`; the pictures, file name → what it shows.

    What somebody wrote above `MARK` in an older comparison.md stays, in both pages.

    Raises:
        CelerisError: the record breaks comparison.schema.json.
    """
    record = finite(record)
    check(record, COMPARISON)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures(record, folder)
    for old in {*folder.glob("pareto_batch_*.png"), folder / "frontier.png"} - {folder / name for name in drawn}:
        old.unlink(missing_ok=True)
    page = folder / "comparison.md"
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    text = join_text(before, comparison_page(record, drawn), MARK, TITLE)
    _write(page, text)
    _write(folder / "comparison.html", to_html(text, folder, TITLE.strip("# \n")))
    _write(folder / "comparison.json", json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return drawn


def _write(file: Path, text: str) -> None:
    """Whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, file)
