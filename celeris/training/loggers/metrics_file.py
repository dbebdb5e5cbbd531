"""metrics.jsonl: every number of a run on the local disk, whatever happens to other loggers."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only


class MetricsFile(Logger):
    """Appends one JSON object a line: {"segment", "step", "time", …values}.

    A resumed run repeats the steps after its checkpoint; they are appended under the next segment number and nothing
    is overwritten. The reader takes, for each step, the line with the highest segment. Tables go to <name>.jsonl
    beside it.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = Path(folder)
        self._segment: int | None = None

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return self.folder.name

    @property
    def file(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def segment(self) -> int:
        """0 for the first start of the run, one more for each resume. Fixed at the first use."""
        known = self._segment
        if known is None:
            known = self._segment = 1 + max((line.get("segment", 0) for line in read_jsonl(self.file)), default=-1)
        return known

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._append(self.file, [dict(metrics)], step)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The composed configuration already lies in the run's folder."""

    @rank_zero_only
    def log_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        self._append(self.folder / f"{name}.jsonl", [dict(zip(columns, row, strict=True)) for row in rows], step)

    def log_image(self, name: str, file: Path, step: int) -> None:
        """Pictures already lie in the run's folder."""

    def _append(self, file: Path, records: list[dict[str, Any]], step: int | None) -> None:
        head = {"segment": self.segment, "step": step, "time": round(time.time(), 3)}
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({**head, **{k: _finite(v) for k, v in record.items()}}) for record in records]
        torn = file.exists() and file.stat().st_size > 0 and not _ends_with_newline(file)
        with file.open("a", encoding="utf-8") as out:
            out.write(("\n" if torn else "") + "".join(line + "\n" for line in lines))


def read_jsonl(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; a line torn by a kill is left out."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def _ends_with_newline(file: Path) -> bool:
    with file.open("rb") as stream:
        stream.seek(-1, 2)
        return stream.read(1) == b"\n"


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: they become their names."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
