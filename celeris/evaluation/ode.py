"""Likelihood by the probability-flow ODE of the diffusion.

The noisy latent of VP diffusion moves deterministically, with the same marginals, along (2011.13456, eq. 13, written
for gamma = −log-SNR as the clock and the score read off x0_hat)

    dz/dgamma = v(z, gamma) = ½·alpha·(alpha·z − x0_hat(z, gamma))

so the density it gives a clean-end latent z_0 is (2011.13456, eq. 39–40; FFJORD 1810.01367)

    log p(z_0) = log N(z_1; 0, I) + ∫ div v dgamma       gamma from gamma_min to gamma_max
    ∫ div v dgamma = ½·D·∫ alpha² dgamma − ½ ∫ alpha·tr(∂x0_hat/∂z) dgamma

The first part is known in closed form. What is integrated is y = z/alpha against s = sigma/alpha = exp(gamma/2), whose
slope is dy/ds = eps_hat, and the second part,
with the trace by Hutchinson's estimator E[ξᵀ(∂x0_hat/∂z)ξ], ξ of random signs. A density is not yet the probability of
tokens. The tokens w are the latent's rounding, p(w) = ∫ p(w|z_0)·p(z_0) dz_0, and with the forward process at gamma_min
as the proposal (variational dequantisation, Flow++ 1902.00275, section 3.1; the bound LangFlow 2604.11748 reports)

    −log p(w) ≤ E_{z_0 ~ q(z_0|x0)}[ −log p(w|z_0) − log p(z_0) + log q(z_0|x0) ]

p(z_0) and p(w|z_0) are normalised, so this is an upper bound in expectation up to the error of the ODE's steps, which
has no sign; it is tight where z_0 decides the tokens and the denoiser is exact, and then every single draw equals
−log p(w). It bounds another model than `variational_bound` does: the deterministic flow, not the reverse SDE.

x0_hat is the bound's own, for a self-conditioned model that of the second of two passes on the same z: both are part of
v and both are differentiated. All positions of a block stand at one level (stagger 0).
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.evaluation.bound import Denoise
from celeris.evaluation.integrators import Heun, Integrator, Rate
from celeris.evaluation.likelihood import Progress, context_denoiser, cut, standard_error, track
from celeris.model import DiffusionLM
from celeris.noise import add_noise, alpha_sigma
from celeris.objectives import token_loss
from celeris.streams import generator
from celeris.typing import Ids, Latent


@dataclass
class FlowReport:
    """Upper bound (in expectation) on −log p in nats per token, its standard error over rows, and its two parts:
    `latent` = log q(z_0|x0) − log p(z_0), `reconstruction` = −log p(w|z_0). `evaluations`: of the field, a row's mean.
    """

    nats_per_token: float
    standard_error: float
    latent: float
    reconstruction: float
    tokens: int
    block_length: int
    evaluations: float
    probes: int


def flow_likelihood(
    model: DiffusionLM,
    rows: Ids,
    *,
    integrator: Integrator | None = None,
    block_length: int | None = None,
    probes: int = 1,
    seed: int = 0,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> FlowReport:
    """−log p of `rows` under the probability-flow ODE, block by block given the clean tokens before each block.

    A row's z_0 and probes come from its own stream and its steps from its own errors: no dependence on `batch_size`.

    Args:
        model: in eval mode.
        rows: (n, L) token ids; PAD is not scored. L must be a multiple of the block length.
        integrator: 128 steps of `Heun` when None.
        block_length: the model's own when None.
        probes: Hutchinson vectors a step; 0: the exact divergence, at C·D backward passes.
        seed: of z_0 and the probes.
        batch_size: rows at a time.
        progress: wraps the iteration, for a progress bar.

    Raises:
        CelerisError: the rows cannot be cut into blocks, or the adaptive integrator gives up.
    """
    length = model.block_length if block_length is None else block_length
    blocks = cut(rows, length)
    low, high = model.schedule.gamma(torch.tensor([0.0, 1.0], dtype=torch.float64, device=model.device)).tolist()
    total, evaluations = torch.zeros(len(rows), 2, dtype=torch.float64), 0
    for chunk in track(torch.arange(len(rows)).split(batch_size), progress):
        ids = blocks[chunk].to(model.device)
        terms, used = row_flow(
            context_denoiser(model, ids), model.embedding.table.detach(), low, high, ids, chunk,
            integrator=integrator or Heun(), probes=probes, seed=seed, pad_id=model.pad_id,
        )  # fmt: skip
        total[chunk] = terms.cpu()
        evaluations += int(used.sum())
    counts = (rows != model.pad_id).sum(1).double()
    latent, reconstruction = (total.sum(0) / counts.sum()).tolist()
    return FlowReport(
        nats_per_token=latent + reconstruction,
        standard_error=standard_error(total.sum(1), counts),
        latent=latent,
        reconstruction=reconstruction,
        tokens=int(counts.sum()),
        block_length=length,
        evaluations=evaluations / len(rows),
        probes=probes,
    )


def row_flow(
    denoise: Denoise,
    table: Tensor,
    low: float,
    high: float,
    ids: Ids,
    index: Ids,
    *,
    integrator: Integrator,
    probes: int = 1,
    seed: int = 0,
    pad_id: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(B, 2) float64: latent and reconstruction terms in nats, summed over each row; (B,) field evaluations.

    Args:
        denoise: any differentiable denoiser, an exact posterior included.
        table: (V, D).
        low, high: gamma_min and gamma_max.
        ids: (B, N, C).
        index: (B,) row numbers, the key of each row's random numbers.
        integrator, probes, seed: as in `flow_likelihood`.
        pad_id: positions that are not counted.
    """
    counted = torch.ones_like(ids, dtype=torch.bool) if pad_id is None else ids != pad_id
    x0 = F.embedding(ids, table)
    rngs = [generator(seed, "flow", k, ids.device) for k in index.tolist()]
    eps = torch.stack([torch.randn(x0.shape[1:], generator=g, device=ids.device) for g in rngs])

    def probe() -> Tensor:
        signs = [torch.randint(0, 2, (probes, *x0.shape[1:]), generator=g, device=ids.device) for g in rngs]
        return torch.stack(signs, 1).to(x0) * 2 - 1

    def field(y: Latent, gamma: Tensor, drawn: Tensor) -> Rate:
        levels = gamma[:, None, None].to(y).expand(ids.shape)
        alpha, sigma = (x[..., None] for x in alpha_sigma(levels))
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            x0_hat = denoise(alpha * y, levels, ids).x0_hat(table)
            vectors = (drawn if probes else _basis(y)) * counted[..., None]
            trace = torch.zeros_like(gamma)
            for number, vector in enumerate(vectors, 1):
                (pulled,) = torch.autograd.grad(x0_hat, y, vector, retain_graph=number < len(vectors))
                trace = trace + (pulled * vector).double().flatten(1).sum(1)
        velocity = (y - x0_hat).detach() * (alpha / sigma) * counted[..., None]
        return Rate(velocity, 0.5 * trace / max(probes, 1))

    clean = x0.new_full(ids.shape, low)
    z = add_noise(x0, clean, eps)
    with torch.no_grad():
        reconstruction = token_loss(denoise(z, clean, ids).logits, ids).double() * counted
    end = integrator(field, z / alpha_sigma(clean).alpha[..., None], low, high, probe)
    first, last = torch.tensor([low, high], dtype=torch.float64, device=ids.device)
    squares = (torch.sigmoid(-last) * end.y.double().square() - eps.double().square()).sum(-1)
    spread = F.softplus(-first) - F.softplus(-last)  # ∫ alpha² dgamma
    latent = 0.5 * (squares - table.shape[1] * (F.logsigmoid(first) + spread)) * counted
    terms = torch.stack([latent.flatten(1).sum(1) + end.integral, reconstruction.flatten(1).sum(1)], 1)
    return terms, end.evaluations


def _basis(z: Latent) -> Tensor:
    """(C·D, B, N, C, D): blocks do not see each other, so the blocks of all rows share one unit vector at a time."""
    size = math.prod(z.shape[2:])
    return torch.eye(size).to(z).view(size, 1, 1, *z.shape[2:]).expand(size, *z.shape)
