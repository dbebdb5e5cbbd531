"""What both decoders do before they start: check a request against the model and lay its prompts out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.streams import generator
from celeris.tokenizer import TextTokenizer


@dataclass
class Request:
    """Prompts as right-padded ids (B, S) with their lengths (B,), and one random generator a row."""

    prompts: list[str]
    ids: Tensor
    lengths: Tensor
    generators: list[torch.Generator]
    tokenizer: TextTokenizer


def prepare(model: LanguageModel, prompts: Sequence[str], num_samples: int, max_new_tokens: int, seed: int) -> Request:
    """Encode and check.

    Raises:
        CelerisError: nothing to do, or prompt and output do not fit the window.
    """
    if model.tokenizer is None:
        raise CelerisError("The model has no tokenizer; load it with LanguageModel.from_pretrained.")
    for name, value in (("num_samples", num_samples), ("max_new_tokens", max_new_tokens), ("prompts", len(prompts))):
        if value < 1:
            raise CelerisError(f"{name} is {value}; it must be at least 1.")
    encoded = [model.tokenizer.encode(prompt) for prompt in prompts for _ in range(num_samples)]
    longest = max(map(len, encoded))
    if longest + max_new_tokens > model.max_length:
        raise CelerisError(
            f"A prompt of {longest} tokens and max_new_tokens={max_new_tokens} exceed the model's window of "
            f"{model.max_length}; shorten the prompt or set max_new_tokens to at most "
            f"{max(model.max_length - longest, 0)}."
        )
    ids = torch.full((len(encoded), longest), model.pad_id)
    for row, tokens in enumerate(encoded):
        ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    # Row k of a batch with seed s draws what the single run with seed s + k draws.
    generators = [generator(seed + row, "sampling", device=model.device) for row in range(len(encoded))]
    return Request(
        [prompt for prompt in prompts for _ in range(num_samples)],
        ids.to(model.device),
        torch.tensor([len(tokens) for tokens in encoded], device=model.device),
        generators,
        model.tokenizer,
    )
