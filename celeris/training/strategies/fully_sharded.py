"""FSDP2 as a Lightning strategy: one mesh over all ranks, and checkpoints that are folders of shards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.strategies.strategy import Strategy
from torch.optim import Optimizer

from celeris.training.checkpoint_folder import read_folder, shard_like, write_folder


class FullySharded(ModelParallelStrategy):
    """Lightning's `ModelParallelStrategy` with every rank on the data-parallel axis of its mesh.

    What is sharded, and when it is gathered, is said in `celeris.training.sharding`; `TrainingModule.configure_model`
    calls that. State dicts are those of the shards (DTensors), as Lightning's plain strategies take them, so a
    checkpoint has one shape everywhere: what differs is only that the tensors of this one are written by all ranks into
    a folder. A folder can be read by any number of ranks and by the other strategies, a file by this one.
    """

    def setup_environment(self) -> None:
        self._data_parallel_size, self._tensor_parallel_size = self.num_nodes * self.num_processes, 1
        super().setup_environment()

    # -- state: Lightning's own would rekey the optimizer by name, and knows nothing of averages ---------------------

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return Strategy.lightning_module_state_dict(self)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return Strategy.optimizer_state(self, optimizer)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        Strategy.load_model_state_dict(self, checkpoint, strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        Strategy.load_optimizer_state_dict(self, checkpoint)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None) -> None:
        """Write the folder `filepath`; all ranks call it with the same path."""
        write_folder(checkpoint, Path(filepath))

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """Lightning's checkpoint with sharded tensors, from a folder or from a file of another strategy."""
        path, mesh = Path(checkpoint_path), self.device_mesh["data_parallel"]
        if path.is_dir():
            return read_folder(path, mesh)
        checkpoint = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        assert self.lightning_module is not None
        return shard_like(checkpoint, self.lightning_module, self.optimizers)
