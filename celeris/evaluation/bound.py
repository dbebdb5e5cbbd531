"""The variational bound of the diffusion on clean rows, from any denoiser.

The bound of a block given clean context (VDM 2107.00630, eq. 11–14 and appendix E; Plaid 2305.18619, section 3), with
gamma_k(t) the level of position k at canvas time t, sums over positions

    diffusion       ½ ∫₀¹ exp(−gamma_k)·gamma_k'(t)·E‖x0 − x̂0(z_t)‖² dt
    reconstruction  E[−log p(token | z_0)]
    prior           KL(q(z_1 | x0) ‖ N(0, I)) = ½·(alpha_1²·(‖x0‖² − D) − D·log sigma_1²)

x̂0 is any function of z_t. Here it is the mean embedding of the model's token distribution; for a self-conditioned
model that of the second of two passes on the same z_t. The sum of a row's blocks, each given the clean tokens before
it, bounds the row's −log p from above.

Rows draw independent noise. Their times are one low-discrepancy sequence, so a row's error tends to cancel its
neighbours': the standard errors over rows, which take rows as independent, are on the safe side.
"""

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.evaluation.clock import Clock, Path, uniform_clock
from celeris.noise import add_noise
from celeris.noise.path import canvas_levels
from celeris.noise.posterior import diffusion_rate, prior_kl
from celeris.noise.times import golden_uniform
from celeris.objectives import token_loss
from celeris.rounding import Denoised
from celeris.streams import generator, stream
from celeris.typing import Gamma, Ids, Latent


class Denoise(Protocol):
    """z (B, N, C, D), gamma (B, N, C), the clean rows' ids (B, N, C) → logits (B, N, C, V), x0_hat."""

    def __call__(self, z: Latent, gamma: Gamma, ids: Ids) -> Denoised: ...


class Rates(NamedTuple):
    """Size of the bound's integrand in nats a position per unit of gamma (K,), between the levels `edges` (K+1,)."""

    edges: Gamma
    rate: Tensor


def row_bounds(
    denoise: Denoise,
    table: Tensor,
    schedule: Path,
    ids: Ids,
    index: Ids,
    *,
    stagger: float,
    samples: int,
    seed: int,
    pad_id: int | None = None,
    clock: Clock | None = None,
) -> Tensor:
    """(B, 3) float64: diffusion, reconstruction and prior terms in nats, summed over each row's positions.

    Sample j of a block takes its time from the j-th of `samples` equal parts of the clock's mass (stratified), and
    visits it with eps and with −eps (antithetic: where one draw hides a token the other tends to show it).

    Args:
        denoise: any denoiser, an exact posterior included.
        table: (V, D).
        ids: (B, N, C).
        index: (B,) row numbers, the key of each row's random numbers.
        stagger, samples, seed: as in `variational_bound`.
        pad_id: positions that are not counted.
        clock: density of the canvas times; uniform when None.
    """
    blocks, length = ids.shape[1:]
    clock = clock or uniform_clock()
    counted = torch.ones_like(ids, dtype=torch.float64) if pad_id is None else (ids != pad_id).double()
    x0 = F.embedding(ids, table)
    device = ids.device
    zero = torch.zeros(ids.shape, dtype=torch.float64, device=device)
    out = torch.zeros(len(ids), 3, dtype=torch.float64, device=device)
    rngs = [generator(seed, "bound", k, device) for k in index.tolist()]
    place = golden_uniform(index[:, None] * blocks + torch.arange(blocks), stream(seed, "bound time"))
    for sample in range(samples):
        t, weight = (x.to(device) for x in clock.draw((place + sample) / samples))
        eps = torch.stack([torch.randn(x0.shape[1:], generator=g, device=device) for g in rngs])
        levels = canvas_levels(t, length, stagger)
        gamma = schedule.gamma(levels.u)
        slope = schedule.slope(levels.u) * levels.speed * weight[..., None]
        rate = _rate(denoise, table, x0, gamma, eps, ids)
        out[:, 0] += (rate * slope * counted).flatten(1).sum(1) / samples
        if sample == 0:
            clean = schedule.gamma(zero).float()
            logits = denoise(add_noise(x0, clean, eps), clean, ids).logits
            out[:, 1] = (token_loss(logits, ids).double() * counted).flatten(1).sum(1)
    noisiest = schedule.gamma(zero + 1)
    prior = prior_kl(x0.double().square().sum(-1), noisiest, table.shape[1])
    out[:, 2] = (prior * counted).flatten(1).sum(1)
    return out


def measure_rates(
    denoise: Denoise,
    table: Tensor,
    schedule: Path,
    ids: Ids,
    *,
    seed: int,
    pad_id: int | None = None,
    bins: int = 32,
    visits: int = 3,
) -> Rates:
    """How large the integrand of the rows `ids` (B, N, C) is by level: a root mean square, for `measured_clock`.

    Every block visits `visits` levels, all its positions together; the levels of all blocks are spread evenly. The
    root mean square, not the mean, because rare large errors are what an estimate's variance is made of.
    """
    low, high = schedule.gamma(torch.tensor([0.0, 1.0], dtype=torch.float64, device=ids.device))
    edges = low + (high - low) * torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=ids.device)
    x0 = F.embedding(ids, table)
    counted = torch.ones_like(ids, dtype=torch.float64) if pad_id is None else (ids != pad_id).double()
    rng = generator(seed, "bound pilot", device=ids.device)
    counter = torch.arange(ids[..., 0].numel()).view(ids.shape[:2]) * visits
    sums = torch.zeros(2, bins, dtype=torch.float64, device=ids.device)  # of squares, and of visits
    for visit in range(visits):
        share = golden_uniform(counter + visit, stream(seed, "bound pilot time")).to(ids.device)
        gamma = (low + (high - low) * share)[..., None].expand(ids.shape)
        rate = _rate(denoise, table, x0, gamma, torch.randn(x0.shape, generator=rng, device=ids.device), ids)
        mean = (rate * counted).sum(-1) / counted.sum(-1).clamp_min(1)
        place = (share * bins).long().clamp_max(bins - 1).flatten()
        sums.index_add_(1, place, torch.stack([mean.square(), torch.ones_like(mean)]).flatten(1))
    squares, seen = F.avg_pool1d(sums, 5, 1, 2)  # a level's neighbours are like it
    return Rates(edges, (squares / seen.clamp_min(1e-9)).sqrt())


def _rate(denoise: Denoise, table: Tensor, x0: Latent, gamma: Gamma, eps: Latent, ids: Ids) -> Tensor:
    """½·exp(−gamma)·‖x0 − x0_hat‖² of each position, the mean over eps and −eps, float64."""
    levels, error = gamma.float(), torch.zeros_like(gamma)
    for noise in (eps, -eps):
        x0_hat = denoise(add_noise(x0, levels, noise), levels, ids).x0_hat(table)
        error = error + 0.5 * (x0 - x0_hat).square().sum(-1).double()
    return diffusion_rate(error, gamma)
