"""Training that starts from a checkpoint: its model and its tokenizer, on the text of this run."""

from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from celeris.data.layouts import Responses
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.streams import stream
from celeris.tasks.exports import existing_path, find_export
from celeris.training.vocabulary import with_new_roles


def checkpoint_model(config: DictConfig) -> LanguageModel:
    """The model of `init_from=`, in training mode; with roles if the layout asks for them.

    Everything under `model:` is the checkpoint's. `block_length` is this run's, and becomes the model's.

    Raises:
        CelerisError: there is no such checkpoint, or the rows of this run are longer than its window.
    """
    existing_path(config.init_from, "init_from")
    folder = find_export(config.init_from, Path(config.paths.runs_dir))
    model = LanguageModel.from_pretrained(folder).train()
    if config.length > model.max_length:
        raise CelerisError(
            f"length={config.length} exceeds the window of {folder}, {model.max_length} tokens; "
            f"set length={model.max_length} or less."
        )
    print(f"starting from {folder}: step {model.info.get('step', 'unknown')}, weights {model.weight_hash}")
    torch.manual_seed(stream(config.seed, "init"))
    if isinstance(instantiate(config.layout), Responses):
        model = with_new_roles(model)
    if hasattr(model, "block_length"):
        model.block_length = config.block_length
        model.spec = {**model.spec, "block_length": config.block_length}
    return model


def origin(model: LanguageModel) -> dict[str, Any]:
    """What an export remembers of the checkpoint it was trained from."""
    known = ("run", "experiment", "step", "weight_hash")
    return {"init_from": {key: model.info[key] for key in known if key in model.info}}
