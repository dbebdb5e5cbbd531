"""Cross-entropy of tokens: of each canvas position, and of the next token in the context stream."""

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.batch import Batch
from celeris.denoiser import Context
from celeris.model import DiffusionLM
from celeris.typing import Ids, Logits


def token_loss(logits: Logits, ids: Ids) -> Tensor:
    """CE in nats of each position: (*shape, V), (*shape) → (*shape)."""
    return F.cross_entropy(logits.flatten(0, -2), ids.flatten(), reduction="none").view(ids.shape)


def next_token_loss(model: DiffusionLM, batch: Batch, context: Context) -> Tensor:
    """Mean CE (nats) of the tokens of `batch.context` after the first, each given what stands before it."""
    return mean_cross_entropy(
        model.next_token_logits(context)[:, :-1], next_tokens(model.pad_id, batch), batch, model.pad_id
    )


def next_tokens(pad_id: int, batch: Batch) -> Ids:
    """(B, S − 1) the tokens that are asked for, PAD in place of the others."""
    return answers_only(batch.context, batch.asked, pad_id)[:, 1:]


def mean_cross_entropy(logits: Logits, targets: Ids, batch: Batch, pad_id: int) -> Tensor:
    """Mean −log p(target) over the targets that are not PAD, counted as "next_token"."""
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=pad_id, reduction="sum")
    return losses / batch.over("next_token", (targets != pad_id).sum().to(losses.dtype))


def answers_only(ids: Ids, asked: Ids | None, pad_id: int) -> Ids:
    """ids (B, L) with PAD in place of each row's first `asked` (B,) tokens, which no loss then counts."""
    if asked is None:
        return ids
    return ids.masked_fill(torch.arange(ids.shape[1], device=ids.device) < asked[:, None], pad_id)
