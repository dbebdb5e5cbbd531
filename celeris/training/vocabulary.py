"""More tokens for a trained model: what it knew stays as it was, and the new ones begin as untrained ones do."""

import copy
from typing import Any

import torch

from celeris.baselines import MaskedLM
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.tokenizer import TextTokenizer, with_roles


def with_new_roles(model: LanguageModel) -> LanguageModel:
    """A model with the tokens of a conversation behind its other ones; `model` itself if its tokenizer has them.

    The old tokens keep their ids and weights, and the new ones are never produced, so it writes what it wrote.

    Raises:
        CelerisError: a masked-diffusion model, whose MASK is the id behind the vocabulary.
    """
    assert model.tokenizer is not None
    if model.tokenizer.roles:
        return model
    if isinstance(model, MaskedLM):
        raise CelerisError(
            "A masked-diffusion model cannot learn roles later; train it with tokenizer.roles=true from the beginning."
        )
    tokenizer = with_roles(model.tokenizer)
    return _extended(model, tokenizer)


def _extended(model: LanguageModel, tokenizer: TextTokenizer) -> LanguageModel:
    spec = _resized(copy.deepcopy(model.spec), model.vocab_size, tokenizer.vocab_size)
    larger = LanguageModel.from_spec({**spec, "role_ids": tokenizer.role_ids})
    weights = larger.state_dict()
    with torch.no_grad():
        for name, old in model.state_dict().items():
            new = weights[name]
            new[tuple(slice(size) for size in old.shape)] = old
    larger.load_state_dict(weights)
    larger.tokenizer, larger.info = tokenizer, model.info
    return larger.to(model.device).train(model.training)


def _resized(spec: Any, old: int, new: int) -> Any:
    if isinstance(spec, list):
        return [_resized(item, old, new) for item in spec]
    if not isinstance(spec, dict):
        return spec
    return {
        key: new if key == "vocab_size" and value == old else _resized(value, old, new) for key, value in spec.items()
    }
