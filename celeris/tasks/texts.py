"""`evaluate.py texts=samples.jsonl`: measure texts from anywhere, with real text beside them when data= names some."""

import hashlib
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig

from celeris.data.sources.base import Source
from celeris.errors import CelerisError
from celeris.evaluation import given_texts
from celeris.evaluation.jsonl import read_texts
from celeris.evaluation.machine import describe_machine
from celeris.evaluation.quality import Quality
from celeris.evaluation.report import Report
from celeris.evaluation.store import Store
from celeris.tasks.text import make_paths_absolute


def measure_texts(config: DictConfig) -> None:
    """Write the report of the texts into `output`, else into evaluation/ beside their file.

    The figures are those of the metric quality, with its scorer and limits, that need no checkpoint.

    Raises:
        CelerisError: a file or line that cannot be read, no text at all, or `quality` left out of the evaluation.
    """
    file = Path(config.texts).expanduser().absolute()
    records = read_texts(file)
    if not records:
        raise CelerisError(f'There are no texts in {file}; write one {{"text": "…"}} a line.')
    quality = instantiate(config.evaluation.get("quality"), _convert_="all")
    if not isinstance(quality, Quality):
        raise CelerisError("texts= takes its scorer and limits from the metric quality; do not leave it out.")
    folder = Path(config.output).expanduser().absolute() if config.output else file.parent / "evaluation"
    store = Store(folder / "kept", config.fresh)
    source = find_source(config)
    section = given_texts.measure_texts(records, file.name, quality, source, config.seed, store, progress=True)
    made_of: dict[str, Any] = {
        "texts": str(file),
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "seed": config.seed,
    }
    data = given_texts.SourceText(source).describe()
    report = Report(made_of, data, describe_machine(), {"quality": section}, reused=list(store.found))
    report.save(folder)
    report.print_summary()


def find_source(config: DictConfig) -> Source | None:
    """The text of `data=`, which needs no tokenizer here; None when there is none."""
    if config.get("data") is None:
        return None
    if config.data.get("source") is None:
        raise CelerisError("data= has no `source`, so its text cannot be read; choose another.")
    make_paths_absolute(config.data)
    source: Source = instantiate(config.data.source, _convert_="all")
    return source
