"""−log p of a continuation given its context, for every kind of model: exact where a model writes token by token, an
upper bound where it does not.

The bound of a block diffusion lays its canvases right behind the context, as `generate` does. The last canvas is as
long as what is left of the continuation: the bound is that of the model that knows where the continuation ends.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import torch
from torch import Tensor

from celeris.baselines.llama import Llama
from celeris.baselines.masked import MaskedLM
from celeris.errors import CelerisError
from celeris.evaluation.bound import Denoise, row_bounds
from celeris.language_model import LanguageModel
from celeris.model import DiffusionLM
from celeris.objectives.tokens import token_loss
from celeris.rounding import Denoised
from celeris.streams import generator
from celeris.typing import Gamma, Ids, Latent, Logits

KEYS = 2**20


class Pair(NamedTuple):
    """Token ids; the continuation has at least one."""

    context: list[int]
    continuation: list[int]

    @property
    def key(self) -> int:
        """Names the random numbers of the pair: continuations of one context that are as long share them, so that
        which of them is likelier depends on the noise as little as may be."""
        return int.from_bytes(hashlib.sha256(repr(self.context).encode()).digest()[:8], "little") % KEYS


class Laid(NamedTuple):
    """Right-padded rows (B, L) of context and continuation, the tokens of each in both and in the context (B,), and
    which positions are scored (B, L)."""

    ids: Tensor
    lengths: Tensor
    starts: Tensor
    scored: Tensor


def lay_out(model: LanguageModel, pairs: Sequence[Pair]) -> Laid:
    """Rows on the model's device.

    Raises:
        CelerisError: a continuation without tokens, or a pair longer than the window.
    """
    rows = [[*pair.context, *pair.continuation] for pair in pairs]
    if not all(pair.continuation for pair in pairs):
        raise CelerisError("A continuation has no tokens, so it has no likelihood; give it at least one.")
    longest = max(map(len, rows))
    if longest > model.max_length:
        raise CelerisError(f"Context and continuation have {longest} tokens, the window {model.max_length}; cut them.")
    ids = torch.full((len(rows), longest), model.pad_id)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    lengths, starts = torch.tensor([len(tokens) for tokens in rows]), torch.tensor([len(p.context) for p in pairs])
    places = torch.arange(longest)
    scored = (places >= starts[:, None]) & (places < lengths[:, None])
    return Laid(*(tensor.to(model.device) for tensor in (ids, lengths, starts, scored)))


# -- exact ------------------------------------------------------------------------------------------------------------


@singledispatch
def causal_logits(model: Any, ids: Ids, lengths: Ids) -> Logits:
    """(B, L, V) logits of each token given those before it, of a model that can write token by token.

    Raises:
        CelerisError: this one cannot.
    """
    raise CelerisError(f"A {type(model).__name__} does not write token by token, so it has no exact likelihood.")


@causal_logits.register
def _(model: Llama, ids: Ids, lengths: Ids) -> Logits:
    return model.logits(ids)


@causal_logits.register
def _(model: DiffusionLM, ids: Ids, lengths: Ids) -> Logits:
    """By the next-token head; EOS, which stands in front of every document, precedes the first token as it does when
    the head writes from nothing."""
    first = torch.full((len(ids), 1), model.eos_id, device=ids.device)
    following = model.next_token_logits(model.encode_context(first))
    return torch.cat([following, model.next_token_logits(model.encode_context(ids, lengths))[:, :-1]], 1)


@torch.no_grad()
def exact_nats(model: LanguageModel, pairs: Sequence[Pair], batch_size: int = 32) -> tuple[Tensor, list[bool]]:
    """Exact −log p of each continuation in nats (n,), float64, and whether each of its tokens is the likeliest."""
    nats, greedy = [], []
    for first in range(0, len(pairs), batch_size):
        laid = lay_out(model, pairs[first : first + batch_size])
        logits = causal_logits(model, laid.ids, laid.lengths)
        nats.append((token_loss(logits, laid.ids).double() * laid.scored).sum(1).cpu())
        greedy += ((logits.argmax(-1) == laid.ids) | ~laid.scored).all(1).tolist()
    return torch.cat(nats), greedy


# -- bounds -----------------------------------------------------------------------------------------------------------


@singledispatch
def bound_nats(model: Any, pairs: Sequence[Pair], samples: int, seed: int, batch_size: int) -> Tensor:
    """Estimate, right in expectation, of an upper bound on −log p of each continuation in nats: (n,) float64.

    A pair's random numbers depend on its context, the length of its continuation and the seed, and on no other pair.

    Args:
        samples: noise levels a block, each visited with eps and −eps, or masks a continuation.

    Raises:
        CelerisError: no bound is known for this kind of model.
    """
    raise CelerisError(f"No bound of a continuation is known for a {type(model).__name__}.")


@bound_nats.register
@torch.no_grad()
def _(model: DiffusionLM, pairs: Sequence[Pair], samples: int, seed: int, batch_size: int) -> Tensor:
    def count(place: int) -> int:
        return -(-len(pairs[place].continuation) // model.block_length)

    nats = torch.zeros(len(pairs), dtype=torch.float64)
    for places in _alike(range(len(pairs)), count, batch_size):
        some = [pairs[place] for place in places]
        laid, blocks = lay_out(model, some), count(places[0])
        canvas = torch.full((len(some), blocks * model.block_length), model.pad_id)
        for row, pair in zip(canvas, some, strict=True):
            row[: len(pair.continuation)] = torch.tensor(pair.continuation)
        ids = canvas.unflatten(1, (blocks, -1)).to(model.device)
        terms = row_bounds(
            continuation_denoiser(model, laid, ids), model.embedding.table, model.schedule, ids,
            torch.tensor([pair.key for pair in some]),
            stagger=model.stagger, samples=samples, seed=seed, pad_id=model.pad_id,
        )  # fmt: skip
        nats[places] = terms.sum(1).cpu()
    return nats


def continuation_denoiser(model: DiffusionLM, laid: Laid, ids: Ids) -> Denoise:
    """x0_hat of the blocks ids (B, N, C) behind each context, given it and the clean blocks before: one pass, or two
    when the model conditions on itself."""
    valid = ids != model.pad_id
    start = laid.starts[:, None] + torch.arange(ids.shape[1], device=ids.device) * ids.shape[2]
    context = model.encode_context(laid.ids, laid.lengths)

    def denoise(z: Latent, gamma: Gamma, ids: Ids) -> Denoised:
        out = model.predict(z, gamma, context, start, None, None, valid)
        if model.self_conditioning:
            out = model.predict(z, gamma, context, start, model.x0_hat(out), None, valid)
        return out

    return denoise


@bound_nats.register
@torch.no_grad()
def _(model: MaskedLM, pairs: Sequence[Pair], samples: int, seed: int, batch_size: int) -> Tensor:
    """As `celeris.baselines.masked.masked_bound`, with the context never masked."""
    nats = torch.zeros(len(pairs), dtype=torch.float64)
    for places in _alike(range(len(pairs)), lambda place: len(pairs[place].continuation), batch_size):
        some = [pairs[place] for place in places]
        laid, length = lay_out(model, some), len(some[0].continuation)
        valid = torch.arange(laid.ids.shape[1], device=model.device) < laid.lengths[:, None]
        keys = [generator(seed, "masked continuation", pair.key) for pair in some]
        for number in range(samples):
            share = torch.stack([torch.rand((), dtype=torch.float64, generator=key) for key in keys])
            count = ((number + share) / samples * length).long().clamp_max(length - 1) + 1
            rank = torch.stack([torch.randperm(length, generator=key) for key in keys])
            chosen = (rank < count[:, None]).to(model.device)
            masked = torch.zeros_like(laid.scored).masked_scatter(laid.scored, chosen)
            loss = token_loss(model.logits(laid.ids.masked_fill(masked, model.mask_id), valid), laid.ids)
            nats[places] += (loss.double() * masked).sum(1).cpu() * length / count / samples
    return nats


def _alike(items: Sequence[int], size: Any, most: int) -> Iterator[list[int]]:
    """Batches of at most `most` items of equal size."""
    groups: dict[int, list[int]] = {}
    for item in items:
        groups.setdefault(size(item), []).append(item)
    for group in groups.values():
        yield from (group[first : first + most] for first in range(0, len(group), most))
