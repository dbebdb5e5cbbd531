"""A model that is in pieces while it trains, as one plain model."""

from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils import parametrize

from celeris.language_model import LanguageModel
from celeris.training.sharding import full, is_sharded

Model = TypeVar("Model", bound=LanguageModel)


@torch.no_grad()
def assembled(model: Model, device: torch.device | None = None) -> Model | None:
    """A model of plain, whole weights that computes the same as `model`; `model` itself where it is that already.

    Low-rank changes are added to the weights they change. Sharded weights are gathered one tensor at a time, all ranks
    together, into a new model on the first rank: beside the shards it is the only copy.

    Args:
        model: as it is trained.
        device: of a new model; that of `model` when None.

    Returns:
        The model; None on the other ranks of a sharded one.
    """
    sharded = is_sharded(model)
    if not sharded and not any(parametrize.is_parametrized(module) for module in model.modules()):
        return model
    plain = None
    if not sharded or dist.get_rank() == 0:
        # Built anew: a copy would share torch's classes of a changed layer with the model that is still being trained.
        plain = type(model).from_spec(model.spec).to(device or model.device)
        plain.tokenizer, plain.info = model.tokenizer, model.info
        plain.train(model.training)
    places = {} if plain is None else plain.state_dict()
    weights = model.state_dict()
    names = [name for name in weights if ".parametrizations." not in name]
    names += [name.replace(".parametrizations", "").removesuffix(".original") for name in weights if _is_changed(name)]
    if plain is not None and places.keys() != set(names):
        raise AssertionError(f"the model and its spec differ: {sorted(places.keys() ^ set(names))[:3]}")
    for name in names:
        whole = full(weights[name] if name in weights else _computed(model, name))
        if plain is not None:
            places[name].copy_(whole)
    return plain


def _is_changed(name: str) -> bool:
    return ".parametrizations." in name and name.endswith(".original")


def _computed(model: LanguageModel, name: str) -> Tensor:
    layer, _, attribute = name.rpartition(".")
    value: Tensor = getattr(model.get_submodule(layer), attribute)
    return value
