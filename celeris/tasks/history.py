"""Being written."""

from omegaconf import DictConfig

from celeris.errors import CelerisError
from celeris.evaluation.report import Report


def keep_history(config: DictConfig, report: Report) -> None:
    """Being written."""
    raise CelerisError("This task is being written.")
