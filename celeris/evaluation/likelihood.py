"""How well a model predicts held-out text: the variational bound of its diffusion, and its next-token head.

The bound of a block given clean context (VDM 2107.00630, eq. 11–14 and appendix E; Plaid 2305.18619, section 3), with
gamma_k(t) the level of position k at canvas time t, sums over positions

    diffusion       ½ ∫₀¹ exp(−gamma_k)·gamma_k'(t)·E‖x0 − x̂0(z_t)‖² dt
    reconstruction  E[−log p(token | z_0)]
    prior           KL(q(z_1 | x0) ‖ N(0, I)) = D/2·log(1 + exp(−gamma_max))     for ‖x0‖² = D

x̂0 is any function of z_t. Here it is the mean embedding of the model's token distribution; for a self-conditioned
model that of the second of two passes on the same z_t. The sum of a row's blocks, each given the clean tokens before
it, bounds the row's −log p from above.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.denoiser import Context
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.noise import add_noise
from celeris.noise.levels import golden_uniform
from celeris.noise.path import canvas_levels
from celeris.objectives.cross_entropy import token_loss
from celeris.rounding import Denoised
from celeris.streams import generator, stream
from celeris.typing import Gamma, Ids, Latent


class Denoise(Protocol):
    """z (B, N, C, D), gamma (B, N, C), the clean rows' ids (B, N, C) → logits (B, N, C, V), x0_hat."""

    def __call__(self, z: Latent, gamma: Gamma, ids: Ids) -> Denoised: ...


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
    samples: int = 4,
    seed: int = 0,
    batch_size: int = 32,
    progress: "Progress | None" = None,
) -> BoundReport:
    """Estimate the bound on `rows`.

    Canvas times are a low-discrepancy sequence over (row, sample, block); the noise of a row comes from its own stream,
    so the estimate does not depend on `batch_size`.

    Args:
        model: in eval mode.
        rows: (n, L) token ids; PAD is not scored. L must be a multiple of the block length.
        block_length, stagger: the model's own when None.
        samples: noise levels per row and block.
        seed: of times and noise.
        batch_size: rows a forward pass.
        progress: wraps the iteration, for a progress bar.

    Raises:
        CelerisError: the rows cannot be cut into blocks.
    """
    length = model.block_length if block_length is None else block_length
    stagger = model.stagger if stagger is None else stagger
    if rows.shape[1] % length:
        raise CelerisError(f"Rows of {rows.shape[1]} tokens cannot be cut into blocks of {length}; choose a divisor.")
    blocks = rows.shape[1] // length
    start = torch.arange(blocks, device=model.device) * length
    total = torch.zeros(len(rows), 3, dtype=torch.float64)
    for chunk in _track(torch.arange(len(rows)).split(batch_size), progress):
        ids = rows[chunk].to(model.device)
        context = model.encode_context(ids, (ids != model.pad_id).sum(1))
        denoise = _with_context(model, context, start.expand(len(chunk), -1), ids.unflatten(1, (blocks, length)))
        total[chunk] = row_bounds(
            denoise, model.embedding.table, model.schedule, ids.unflatten(1, (blocks, length)), chunk,
            stagger=stagger, samples=samples, seed=seed, pad_id=model.pad_id,
        ).cpu()  # fmt: skip
    counts = (rows != model.pad_id).sum(1).double()
    diffusion, reconstruction, prior = (total.sum(0) / counts.sum()).tolist()
    return BoundReport(
        nats_per_token=diffusion + reconstruction + prior,
        standard_error=_standard_error(total.sum(1), counts),
        diffusion=diffusion,
        reconstruction=reconstruction,
        prior=prior,
        tokens=int(counts.sum()),
        block_length=length,
        stagger=float(stagger),
        samples=samples,
    )


def row_bounds(
    denoise: Denoise,
    table: Tensor,
    schedule: "HasGamma",
    ids: Ids,
    index: Ids,
    *,
    stagger: float,
    samples: int,
    seed: int,
    pad_id: int | None = None,
) -> Tensor:
    """(B, 3) float64: diffusion, reconstruction and prior terms in nats, summed over each row's positions.

    Args:
        denoise: any denoiser, an exact posterior included.
        table: (V, D).
        ids: (B, N, C).
        index: (B,) row numbers, the key of each row's random numbers.
        stagger, samples, seed: as in `variational_bound`.
        pad_id: positions that are not counted.
    """
    rows, blocks, length = ids.shape
    counted = torch.ones_like(ids, dtype=torch.float64) if pad_id is None else (ids != pad_id).double()
    x0 = F.embedding(ids, table)
    device = ids.device
    zero = torch.zeros(rows, blocks, length, dtype=torch.float64, device=device)
    out = torch.zeros(rows, 3, dtype=torch.float64, device=device)
    rngs = [generator(seed, "bound", k, device) for k in index.tolist()]
    for sample in range(samples):
        counter = (index[:, None] * samples + sample) * blocks + torch.arange(blocks)
        t = golden_uniform(counter, stream(seed, "bound time")).to(device)
        eps = torch.stack([torch.randn(x0.shape[1:], generator=g, device=device) for g in rngs])
        levels = canvas_levels(t, length, stagger)
        gamma = schedule.gamma(levels.u)
        slope = schedule.slope(levels.u) * levels.speed
        x0_hat = denoise(add_noise(x0, gamma.float(), eps), gamma.float(), ids).x0_hat(table)
        error = (x0 - x0_hat).square().sum(-1).double()
        out[:, 0] += (0.5 * torch.exp(-gamma) * slope * error * counted).flatten(1).sum(1) / samples
        if sample == 0:
            clean = schedule.gamma(zero)
            logits = denoise(add_noise(x0, clean.float(), eps), clean.float(), ids).logits
            out[:, 1] = (token_loss(logits, ids).double() * counted).flatten(1).sum(1)
    noisiest = schedule.gamma(zero + 1)
    out[:, 2] = (0.5 * table.shape[1] * torch.log1p(torch.exp(-noisiest)) * counted).flatten(1).sum(1)
    return out


@torch.no_grad()
def next_token_nll(
    model: DiffusionLM, rows: Ids, *, batch_size: int = 32, progress: "Progress | None" = None
) -> NextTokenReport:
    """Exact −log p of `rows` (n, L) under the next-token head, on the same tokens as the bound."""
    nats = torch.zeros(len(rows), dtype=torch.float64)
    for chunk in _track(torch.arange(len(rows)).split(batch_size), progress):
        ids = rows[chunk].to(model.device)
        context = model.encode_context(ids, (ids != model.pad_id).sum(1))
        first = model.rounding.prior.expand(len(ids), 1, -1)
        loss = token_loss(torch.cat([first, model.next_token_logits(context)[:, :-1]], 1), ids)
        nats[chunk] = (loss.double() * (ids != model.pad_id)).sum(1).cpu()
    counts = (rows != model.pad_id).sum(1).double()
    return NextTokenReport(float(nats.sum() / counts.sum()), _standard_error(nats, counts), int(counts.sum()))


class HasGamma(Protocol):
    """The part of a schedule that the bound reads."""

    def gamma(self, t: Tensor) -> Gamma: ...

    def slope(self, t: Tensor) -> Tensor: ...


class Progress(Protocol):
    """Wraps an iteration, like `rich.progress.track`."""

    def __call__(self, items: Iterable[Tensor], total: int) -> Iterable[Tensor]: ...


def _with_context(model: DiffusionLM, context: Context, start: Ids, canvas: Ids) -> Denoise:
    valid = canvas != model.pad_id

    def denoise(z: Latent, gamma: Gamma, ids: Ids) -> Denoised:
        out = model.predict(z, gamma, context, start, None, None, valid)
        if model.self_conditioning:
            out = model.predict(z, gamma, context, start, model.x0_hat(out), None, valid)
        return out

    return denoise


def _track(chunks: tuple[Tensor, ...], progress: Progress | None) -> Iterator[Tensor]:
    yield from chunks if progress is None else progress(chunks, total=len(chunks))


def _standard_error(nats: Tensor, counts: Tensor) -> float:
    """Of the ratio Σ nats / Σ tokens, rows taken as independent (delta method)."""
    if len(nats) < 2:
        return math.inf
    residual = nats - nats.sum() / counts.sum() * counts
    return float(residual.square().sum().sqrt() * math.sqrt(len(nats) / (len(nats) - 1)) / counts.sum())
