"""Cross-entropy of tokens: of each canvas position, and of the next token in the context stream."""

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.denoiser import Context
from celeris.model import DiffusionLM
from celeris.typing import Ids, Logits


def token_loss(logits: Logits, ids: Ids) -> Tensor:
    """CE in nats of each position: (*shape, V), (*shape) → (*shape)."""
    return F.cross_entropy(logits.flatten(0, -2), ids.flatten(), reduction="none").view(ids.shape)


def next_token_loss(model: DiffusionLM, ids: Ids, context: Context, asked: Ids | None = None) -> Tensor:
    """Mean CE (nats) of ids[:, 1:] given what stands before; PAD and the first `asked` (B,) tokens are not counted."""
    logits = model.next_token_logits(context)[:, :-1]
    targets = answers_only(ids, asked, model.pad_id)[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=model.pad_id)


def answers_only(ids: Ids, asked: Ids | None, pad_id: int) -> Ids:
    """ids (B, L) with PAD in place of each row's first `asked` (B,) tokens, which no loss then counts."""
    if asked is None:
        return ids
    return ids.masked_fill(torch.arange(ids.shape[1], device=ids.device) < asked[:, None], pad_id)
