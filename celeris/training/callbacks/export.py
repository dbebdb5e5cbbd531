"""An export at the end of training, however it ended well."""

from pathlib import Path
from typing import Any

import lightning as L

from celeris.training.export import export
from celeris.training.sharding import is_sharded


class Export(L.Callback):
    """Writes run/export after the last step, and when a run is stopped by time or signal.

    Args:
        folder: where to.
        info: plain JSON values kept with the weights.
    """

    def __init__(self, folder: str | Path, info: dict[str, Any] | None = None) -> None:
        self.folder, self.info = Path(folder), info

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero or is_sharded(pl_module):
            export(pl_module, self.folder, self.info)
        trainer.strategy.barrier("export")
