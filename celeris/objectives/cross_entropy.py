"""Cross-entropy of the tokens under the denoiser's rounding distribution (CDCD 2211.15089; LangFlow 2604.11748)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from celeris.batch import Batch
from celeris.denoiser import Context
from celeris.model import DiffusionLM
from celeris.noise import Observed, add_noise
from celeris.noise.levels import LevelMixture, RowNoise
from celeris.typing import Ids, Logits, Mask


@dataclass
class ObjectiveOutput:
    """`loss` (nats per token) to differentiate, and its named terms, detached."""

    loss: Tensor
    terms: dict[str, Tensor]


class CrossEntropy(nn.Module):
    """mean CE on moving canvas positions + next-token CE on the context + the schedule's own regression.

    Self-conditioning: rows picked with probability `self_conditioning` first get a gradient-free pass whose x0_hat is
    then fed back (Analog Bits, 2208.04202).

    Args:
        levels: the law of training noise levels.
        self_conditioning: probability per row.
        next_token_weight: weight of the auxiliary loss (0: none is computed).
        schedule_weight: weight of a schedule's regression term; reaches the schedule's parameters only.
    """

    def __init__(
        self,
        levels: LevelMixture,
        self_conditioning: float = 0.5,
        next_token_weight: float = 0.5,
        schedule_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.levels, self.self_conditioning = levels, self_conditioning
        self.next_token_weight, self.schedule_weight = next_token_weight, schedule_weight

    def forward(self, model: DiffusionLM, batch: Batch, seed: int) -> ObjectiveOutput:
        blocks, length = batch.canvas.shape[1:]
        noise = self.levels.draw(batch.index, blocks, length, model.embedding.dim, seed, batch.canvas.device)
        valid = batch.canvas != model.pad_id
        # A position that waits for its turn (u = 1) or has arrived (u = 0) decides nothing in the bound or the sampler.
        counted = valid & ~batch.given & (noise.u > 0) & (noise.u < 1)
        context = model.encode_context(batch.context, (batch.context != model.pad_id).sum(1))
        loss_per_token, seen = self._canvas_loss(model, batch, noise, context, valid, counted)
        share = counted / counted.sum().clamp_min(1)
        diffusion = (loss_per_token * share).sum()
        terms = {"loss_diffusion": diffusion.detach()}
        loss = diffusion
        if self.next_token_weight and model.has_next_token_head and batch.context.shape[1] > 1:
            next_token = next_token_loss(model, batch.context, context)
            terms["loss_next_token"] = next_token.detach()
            loss = loss + self.next_token_weight * next_token
        if model.training:
            fit = model.schedule.fit(seen)
            if fit is not None:
                terms["loss_schedule"] = fit.detach()
                loss = loss + self.schedule_weight * fit
        terms["loss"] = loss.detach()
        return ObjectiveOutput(loss, terms)

    def _canvas_loss(
        self, model: DiffusionLM, batch: Batch, noise: RowNoise, context: Context, valid: Mask, counted: Mask
    ) -> tuple[Tensor, Observed]:
        """CE (B, N, C) of every canvas position, and what the schedule may learn from."""
        x0 = model.embedding(batch.canvas)
        gamma = model.schedule.gamma(noise.u)
        z = torch.where(batch.given[..., None], x0, add_noise(x0, gamma, noise.eps))
        some_given = batch.given if batch.infill else None
        some_pad = valid if batch.ragged else None
        carried = None
        share = self.self_conditioning if model.self_conditioning else 0.0
        chosen = torch.tensor([k for k, coin in enumerate(noise.coins) if coin < share], device=z.device)
        if len(chosen):
            carried = torch.zeros_like(z)
            with torch.no_grad():
                part = [None if x is None else x[chosen] for x in (some_given, some_pad)]
                first = model.predict(
                    z[chosen], gamma[chosen], context.detach().rows(chosen), batch.start[chosen], None, *part
                )
                carried[chosen] = model.x0_hat(first).to(z.dtype)
        out = model.predict(z, gamma, context, batch.start, carried, some_given, some_pad)
        loss = token_loss(out.logits, batch.canvas)

        def rate() -> Tensor:
            with torch.no_grad():
                return 0.5 * torch.exp(-gamma) * (x0 - model.x0_hat(out)).square().sum(-1)

        return loss, Observed(gamma.detach(), loss.detach(), counted, rate)


def token_loss(logits: Logits, ids: Ids) -> Tensor:
    """CE in nats of each position: (*shape, V), (*shape) → (*shape)."""
    return F.cross_entropy(logits.flatten(0, -2), ids.flatten(), reduction="none").view(ids.shape)


def next_token_loss(model: DiffusionLM, ids: Ids, context: Context) -> Tensor:
    """Mean CE (nats) of ids[:, 1:] given what stands before, PAD not counted."""
    logits = model.next_token_logits(context)[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=model.pad_id)
