"""Being written."""

from omegaconf import DictConfig

from celeris.errors import CelerisError


def watch_checkpoint(config: DictConfig) -> None:
    """Being written."""
    raise CelerisError("This task is being written.")
