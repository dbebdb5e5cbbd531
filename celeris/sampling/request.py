"""What every decoder does before it starts: check a request against the model and lay its prompts out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.sampling.overflow import Overflow, Refuse
from celeris.streams import generator
from celeris.tokenizer import TextTokenizer

Message = Mapping[str, str]
Prompt = str | Sequence[int] | Sequence[Message]
"""A text, token ids, or the messages of a chat ({"role": …, "content": …})."""


@dataclass
class Request:
    """Prompts as right-padded ids (B, S) with their lengths (B,), and one random generator a row.

    `prompts` are their texts; `encoded` their ids without padding.
    """

    prompts: list[str]
    ids: Tensor
    lengths: Tensor
    generators: list[torch.Generator]
    tokenizer: TextTokenizer
    encoded: list[list[int]] = field(default_factory=list)


def prepare(
    model: LanguageModel,
    prompts: Sequence[Prompt],
    num_samples: int,
    max_new_tokens: int,
    seed: int,
    context_overflow: Overflow | None = None,
    block_length: int = 1,
) -> Request:
    """Encode and check.

    Args:
        context_overflow: what is asked where prompt and output may not fit the window; `Refuse()` when None.
        block_length: tokens written together.

    Raises:
        CelerisError: nothing to do, a prompt that is none, or prompt and output do not fit the window.
    """
    tokenizer = tokenizer_of(model)
    if isinstance(prompts, str):
        raise CelerisError("prompts is one text; put it into a list: [prompt].")
    for name, value in (("num_samples", num_samples), ("max_new_tokens", max_new_tokens), ("prompts", len(prompts))):
        if value < 1:
            raise CelerisError(f"{name} is {value}; it must be at least 1.")
    own = [encode_prompt(model, prompt) for prompt in prompts]
    encoded = [ids for ids in own for _ in range(num_samples)]
    longest = max(map(len, encoded))
    (context_overflow or Refuse()).check(longest, max_new_tokens, block_length, model.max_length)
    ids, lengths = padded(encoded, model.pad_id, model.device)
    texts = [p if isinstance(p, str) else tokenizer.decode(ids) for p, ids in zip(prompts, own, strict=True)]
    # Row k of a batch with seed s draws what the single run with seed s + k draws.
    generators = [generator(seed + row, "sampling", device=model.device) for row in range(len(encoded))]
    return Request([text for text in texts for _ in range(num_samples)], ids, lengths, generators, tokenizer, encoded)


def check_least(min_new_tokens: int, max_new_tokens: int) -> None:
    """Refuse a least number of tokens that is none, or more than the most."""
    if not 0 <= min_new_tokens <= max_new_tokens:
        raise CelerisError(
            f"min_new_tokens is {min_new_tokens}; it must lie in 0 … {max_new_tokens}, which is max_new_tokens."
        )


def tokenizer_of(model: LanguageModel) -> TextTokenizer:
    """The model's tokenizer.

    Raises:
        CelerisError: it has none.
    """
    if model.tokenizer is None:
        raise CelerisError("The model has no tokenizer; load it with LanguageModel.from_pretrained.")
    return model.tokenizer


def encode_prompt(model: LanguageModel, prompt: Prompt) -> list[int]:
    """Token ids of a text, of ids, or of a chat up to where the answer begins.

    Special tokens in ids are context like any other: an EOS is where an earlier document ends.

    Raises:
        CelerisError: an id that the model has not, PAD among the ids, or something else than the three.
    """
    tokenizer: Any = tokenizer_of(model)
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    items = list(prompt)
    if items and all(isinstance(item, Mapping) for item in items):
        return list(tokenizer.encode_chat(items))
    ids: list[int] = []
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int):
            raise CelerisError(
                f"A prompt holds {item!r}; it must be a text, token ids, or messages with role and content."
            )
        if not 0 <= item < model.vocab_size or item == model.pad_id:
            raise CelerisError(
                f"A prompt holds the token id {item}; ids lie in 0 … {model.vocab_size - 1} and PAD ({model.pad_id}) "
                "is no text."
            )
        ids.append(item)
    return ids


def padded(encoded: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Right-padded ids (B, S) and their lengths (B,)."""
    ids = torch.full((len(encoded), max(map(len, encoded))), pad_id)
    for row, tokens in enumerate(encoded):
        ids[row, : len(tokens)] = torch.tensor(list(tokens), dtype=torch.long)
    return ids.to(device), torch.tensor([len(tokens) for tokens in encoded], device=device)
