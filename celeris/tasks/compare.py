"""Being written."""

from omegaconf import DictConfig

from celeris.errors import CelerisError


def compare_checkpoints(config: DictConfig) -> None:
    """Being written."""
    raise CelerisError("This task is being written.")
