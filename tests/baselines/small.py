"""Small baselines with weights moved off their start, and a tokenizer of single letters."""

from typing import TypeVar

import torch

from celeris.baselines import Llama, MaskedLM
from celeris.language_model import LanguageModel
from celeris.streams import generator
from celeris.tokenizer import TextTokenizer, character_backend

LETTERS = "abcdefgh"
Model = TypeVar("Model", bound=LanguageModel)


def tokenizer() -> TextTokenizer:
    """PAD 0, EOS 1, UNK 2, then the letters."""
    return TextTokenizer(character_backend(sorted(LETTERS)), 0, 1, 2)


def small_llama(tie_embeddings: bool = False) -> Llama:
    torch.manual_seed(0)
    model = Llama(11, 32, 32, 2, 2, 48, tie_embeddings=tie_embeddings, unk_id=2)
    return shaken(model)


def small_masked(embedding_dim: int | None = None, left_neighbour: bool = True) -> MaskedLM:
    torch.manual_seed(0)
    model = MaskedLM(
        11, 32, 32, 2, 2, mixing=(2, 2), embedding_dim=embedding_dim, left_neighbour=left_neighbour, unk_id=2
    )
    return shaken(model)


def shaken(model: Model) -> Model:
    rng = generator(0, "test weights")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=rng))
    model.tokenizer = tokenizer()
    return model.eval()
