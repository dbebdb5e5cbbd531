"""Cross-entropy of tokens: of each canvas position, and of the next token in the context stream."""

import torch.nn.functional as F
from torch import Tensor

from celeris.denoiser import Context
from celeris.model import DiffusionLM
from celeris.typing import Ids, Logits


def token_loss(logits: Logits, ids: Ids) -> Tensor:
    """CE in nats of each position: (*shape, V), (*shape) → (*shape)."""
    return F.cross_entropy(logits.flatten(0, -2), ids.flatten(), reduction="none").view(ids.shape)


def next_token_loss(model: DiffusionLM, ids: Ids, context: Context) -> Tensor:
    """Mean CE (nats) of ids[:, 1:] given what stands before, PAD not counted."""
    logits = model.next_token_logits(context)[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=model.pad_id)
