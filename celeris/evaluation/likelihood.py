"""How well a model predicts held-out text: the variational bound of its diffusion, and its next-token head."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from celeris.data.layouts import Documents
from celeris.errors import CelerisError
from celeris.evaluation.bound import Denoise, measure_rates, row_bounds
from celeris.evaluation.clock import measured_clock
from celeris.model import DiffusionLM
from celeris.objectives import token_loss
from celeris.rounding import Denoised
from celeris.typing import Gamma, Ids, Latent

PILOT_ROWS = 8


class Progress(Protocol):
    """Wraps an iteration, like `rich.progress.track`."""

    def __call__(self, items: Iterable[Tensor], total: int) -> Iterable[Tensor]: ...


@dataclass
class BoundReport:
    """Upper bound on −log p in nats per token, its standard error over rows, and its three named parts."""

    nats_per_token: float
    standard_error: float
    diffusion: float
    reconstruction: float
    prior: float
    tokens: int
    block_length: int
    stagger: float
    samples: int


@dataclass
class NextTokenReport:
    """Mean −log p(token | tokens before it in the row) in nats; a row's first token is scored by the unigram prior."""

    nats_per_token: float
    standard_error: float
    tokens: int


@torch.no_grad()
def variational_bound(
    model: DiffusionLM,
    rows: Ids,
    *,
    block_length: int | None = None,
    stagger: float | None = None,
    samples: int = 2,
    seed: int = 0,
    batch_size: int = 32,
    progress: Progress | None = None,
    layout: Documents | None = None,
) -> BoundReport:
    """Estimate the bound on `rows`.

    The canvas times follow a density measured on a few rows first, with noise of its own (`celeris.evaluation.clock`).
    Times and noise are keyed by the row, so the estimate does not depend on `batch_size`.

    Args:
        model: in eval mode.
        rows: (n, L) token ids; PAD is not scored. L must be a multiple of the block length.
        block_length, stagger: the model's own when None.
        samples: noise levels per row and block, each visited with eps and −eps.
        seed: of times and noise.
        batch_size: rows a forward pass.
        progress: wraps the iteration, for a progress bar.
        layout: bound to the tokenizer, with nothing dropped or given: what it only reads is context, and what it fills
            the last block of a text with is part of the sum and no token, which leaves it an upper bound on the text;
            its block length is the one that counts. None: all of each row, cut into blocks.

    Raises:
        CelerisError: the rows cannot be cut into blocks.
    """
    length = model.block_length if block_length is None else block_length
    stagger = model.stagger if stagger is None else stagger
    before, starts, counts = rows, None, (rows != model.pad_id).sum(1).double()
    if layout is None:
        blocks = cut(rows, length)
    else:
        batch = layout(rows, torch.arange(len(rows)), seed=0, pad_id=model.pad_id)
        blocks, before, starts, length = batch.canvas, batch.context, batch.start, layout.block_length
        counts = counts - layout.asked(rows)

    def denoiser(chunk: Tensor) -> Denoise:
        own = None if starts is None else starts[chunk].to(model.device)
        return context_denoiser(model, blocks[chunk].to(model.device), before[chunk].to(model.device), own)

    table, schedule, pad_id = model.embedding.table, model.schedule, model.pad_id
    some = torch.arange(min(PILOT_ROWS, len(rows))) * len(rows) // min(PILOT_ROWS, len(rows))
    pilot = blocks[some].to(model.device)
    rates = measure_rates(denoiser(some), table, schedule, pilot, seed=seed, pad_id=pad_id)
    clock = measured_clock(schedule, rates.edges, rates.rate, length, stagger)
    total = torch.zeros(len(rows), 3, dtype=torch.float64)
    for chunk in track(torch.arange(len(rows)).split(batch_size), progress):
        ids = blocks[chunk].to(model.device)
        total[chunk] = row_bounds(
            denoiser(chunk), table, schedule, ids, chunk,
            stagger=stagger, samples=samples, seed=seed, pad_id=pad_id, clock=clock,
        ).cpu()  # fmt: skip
    diffusion, reconstruction, prior = (total.sum(0) / counts.sum()).tolist()
    return BoundReport(
        nats_per_token=diffusion + reconstruction + prior,
        standard_error=standard_error(total.sum(1), counts),
        diffusion=diffusion,
        reconstruction=reconstruction,
        prior=prior,
        tokens=int(counts.sum()),
        block_length=length,
        stagger=float(stagger),
        samples=samples,
    )


def context_denoiser(model: DiffusionLM, ids: Ids, rows: Ids | None = None, start: Ids | None = None) -> Denoise:
    """x0_hat of the blocks ids (B, N, C), each given the clean blocks before it, or the first `start` (B, N) tokens of
    `rows` (B, S): one pass, or two when the model conditions on itself, the second on what the first found."""
    rows, valid = ids.flatten(1) if rows is None else rows, ids != model.pad_id
    if start is None:
        start = (torch.arange(ids.shape[1], device=ids.device) * ids.shape[2]).expand(len(ids), -1)
    with torch.no_grad():
        context = model.encode_context(rows, (rows != model.pad_id).sum(1))

    def denoise(z: Latent, gamma: Gamma, ids: Ids) -> Denoised:
        out = model.predict(z, gamma, context, start, None, None, valid)
        if model.self_conditioning:
            out = model.predict(z, gamma, context, start, model.x0_hat(out), None, valid)
        return out

    return denoise


def cut(rows: Ids, length: int) -> Ids:
    """(n, L) → (n, N, C) blocks of `length`.

    Raises:
        CelerisError: L is not a multiple of it.
    """
    if rows.shape[1] % length:
        raise CelerisError(f"Rows of {rows.shape[1]} tokens cannot be cut into blocks of {length}; choose a divisor.")
    return rows.unflatten(1, (-1, length))


@torch.no_grad()
def next_token_nll(
    model: DiffusionLM,
    rows: Ids,
    *,
    batch_size: int = 32,
    progress: Progress | None = None,
    layout: Documents | None = None,
) -> NextTokenReport:
    """Exact −log p of `rows` (n, L) under the next-token head, on the same tokens as the bound."""
    nats, counted = torch.zeros(len(rows), dtype=torch.float64), rows != model.pad_id
    if layout is not None:
        counted &= torch.arange(rows.shape[1]) >= layout.asked(rows)[:, None]
    for chunk in track(torch.arange(len(rows)).split(batch_size), progress):
        ids = rows[chunk].to(model.device)
        context = model.encode_context(ids, (ids != model.pad_id).sum(1))
        first = model.rounding.prior.expand(len(ids), 1, -1)
        loss = token_loss(torch.cat([first, model.next_token_logits(context)[:, :-1]], 1), ids)
        # Not a product: what is not counted may cost 1e9.
        nats[chunk] = loss.double().cpu().where(counted[chunk], 0.0).sum(1)
    counts = counted.sum(1).double()
    return NextTokenReport(float(nats.sum() / counts.sum()), standard_error(nats, counts), int(counts.sum()))


def track(chunks: tuple[Tensor, ...], progress: Progress | None) -> Iterator[Tensor]:
    """The chunks of rows, under a progress bar if there is one."""
    yield from chunks if progress is None else progress(chunks, total=len(chunks))


def standard_error(nats: Tensor, counts: Tensor) -> float:
    """Of the ratio Σ nats / Σ tokens, rows taken as independent (delta method)."""
    if len(nats) < 2:
        return math.inf
    residual = nats - nats.sum() / counts.sum() * counts
    return float(residual.square().sum().sqrt() * math.sqrt(len(nats) / (len(nats) - 1)) / counts.sum())
