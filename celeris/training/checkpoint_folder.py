"""Checkpoints as folders: tensors by torch.distributed.checkpoint, written by all ranks; the rest as one plain file.

A sharded tensor is always cut along its first axis, evenly over the ranks that hold it, so a folder written by W ranks
says all that any other number needs to read its own part.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, zeros
from torch.optim import Optimizer

from celeris.errors import CelerisError

REST = "rest.pt"
TENSOR = "__tensor__"
"""Key of the record that stands in REST where a tensor was."""


class CheckpointFiles(TorchCheckpointIO):
    """Lightning's files, and folders of a sharded run read whole: what a strategy without shards resumes from."""

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if Path(path).is_dir():
            return read_folder(Path(path))
        checkpoint: dict[str, Any] = super().load_checkpoint(path, *args, **kwargs)
        return checkpoint


def write_folder(state: dict[str, Any], folder: Path) -> None:
    """Write nested containers of tensors and plain values. All ranks call it; plain values are the first rank's.

    Args:
        state: sharded tensors are DTensors, all others equal on all ranks.
        folder: missing or empty.

    Raises:
        OSError: a rank could not write; the folder is not whole then.
    """
    tensors: dict[str, Tensor] = {}

    def take(value: Any, place: str) -> Any:
        tensors[place] = value.detach()
        return {TENSOR: place, "sharded": isinstance(value, DTensor)}

    rest = _replaced(state, lambda value: isinstance(value, Tensor), take)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        dcp.save(tensors, checkpoint_id=folder, no_dist=not dist.is_initialized())
    except CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise OSError(getattr(cause, "errno", None), getattr(cause, "strerror", None) or str(cause)) from error
    if not dist.is_initialized() or dist.get_rank() == 0:
        torch.save(rest, folder / REST)
        with (folder / REST).open("rb") as file:
            os.fsync(file.fileno())


def read_folder(folder: Path, mesh: DeviceMesh | None = None) -> dict[str, Any]:
    """What `write_folder` was given, from any number of ranks.

    Args:
        folder: written by any number of ranks.
        mesh: sharded tensors come back sharded over it (all ranks call together); None: whole, on the CPU.

    Raises:
        CelerisError: the folder is no checkpoint, or not whole.
    """
    try:
        rest = torch.load(folder / REST, weights_only=True)
        reader = dcp.FileSystemReader(folder)
        stored = reader.read_metadata().state_dict_metadata
    except OSError as error:
        raise CelerisError(f"'{folder}' is no whole checkpoint ({error}); resume from another one.") from error
    tensors: dict[str, Tensor] = {}

    def empty(record: Any, place: str) -> Any:
        what = stored[record[TENSOR]]
        assert isinstance(what, TensorStorageMetadata)
        if record["sharded"] and mesh is not None:
            made: Tensor = zeros(what.size, dtype=what.properties.dtype, device_mesh=mesh, placements=[Shard(0)])
        else:
            made = torch.zeros(what.size, dtype=what.properties.dtype)
        tensors[record[TENSOR]] = made
        return made

    state: dict[str, Any] = _replaced(rest, lambda value: isinstance(value, dict) and TENSOR in value, empty)
    dcp.load(tensors, storage_reader=reader, no_dist=mesh is None)
    return state


def shard_like(checkpoint: dict[str, Any], module: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
    """A checkpoint of whole tensors, cut as the parameters of `module` and the state of its optimizers are."""
    cut = {name: p for name, p in module.named_parameters() if isinstance(p, DTensor)}
    by_model_name = {name.removeprefix("model."): p for name, p in cut.items()}
    states = []
    for optimizer, saved in zip(optimizers, checkpoint["optimizer_states"], strict=True):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state = {
            number: {key: _cut(value, parameters[number]) for key, value in values.items()}
            for number, values in saved["state"].items()
        }
        states.append({**saved, "state": state})
    own = checkpoint["celeris"]
    average = own["ema"]["average"]
    if average is not None:
        average = {name: _cut(value, by_model_name.get(name)) for name, value in average.items()}
    return {
        **checkpoint,
        "state_dict": {name: _cut(value, cut.get(name)) for name, value in checkpoint["state_dict"].items()},
        "optimizer_states": states,
        "celeris": {**own, "ema": {**own["ema"], "average": average}},
    }


def _cut(value: Any, like: Tensor | None) -> Any:
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    # Every rank has read the same file: nothing needs to be sent.
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _replaced(value: Any, chosen: Callable[[Any], bool], change: Callable[[Any, str], Any], place: str = "") -> Any:
    """Nested dicts, lists and tuples with `change(item, place)` in place of every chosen item."""
    if chosen(value):
        return change(value, place)
    if isinstance(value, dict):
        return {key: _replaced(item, chosen, change, f"{place}/{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replaced(item, chosen, change, f"{place}/{k}") for k, item in enumerate(value))
    return value
