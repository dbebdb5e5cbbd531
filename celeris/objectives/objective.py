"""What every diffusion objective has in common: draw noise, read the batch once, average, name the terms."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from celeris.batch import Batch
from celeris.denoiser import Context
from celeris.model import DiffusionLM
from celeris.noise import Observed, add_noise
from celeris.noise.levels import LevelMixture, RowNoise
from celeris.noise.posterior import diffusion_rate
from celeris.objectives.tokens import next_token_loss, next_tokens, token_loss
from celeris.rounding import Denoised
from celeris.typing import Gamma, Latent, Mask


@dataclass
class ObjectiveOutput:
    """`loss` (nats per token where every term is in nats) to differentiate, and its named terms, detached."""

    loss: Tensor
    terms: dict[str, Tensor]


class Term(NamedTuple):
    """A scalar of the loss; it is logged as it is and counts `weight` times."""

    value: Tensor
    weight: float = 1.0


class Reading(NamedTuple):
    """What the denoiser made of a noisy batch.

    Attributes:
        x0, eps: (B, N, C, D) embedded tokens and the noise on them.
        u, gamma: (B, N, C) schedule time and level of each position.
        out: logits (B, N, C, V), and x0_hat where the head predicts it.
        cross_entropy: (B, N, C) nats of each token under `out`.
        text: (B, N, C) positions whose token is asked for: neither PAD nor given.
        counted: those of them that are on their way, 0 < u < 1. One that waits for its turn (u = 1) or has arrived
            (u = 0) decides nothing in the bound or the sampler.
    """

    x0: Latent
    eps: Latent
    u: Tensor
    gamma: Gamma
    out: Denoised
    cross_entropy: Tensor
    text: Mask
    counted: Mask


class Objective(nn.Module, ABC):
    """mean of `token_losses` over moving canvas positions + terms of its own + next-token term + the schedule's fit.

    The mean is weighted by what the law of levels says a position counts, and the law sees the losses in return.

    Self-conditioning: rows picked with probability `self_conditioning` first get a gradient-free pass whose x0_hat is
    then fed back (Analog Bits, 2208.04202).

    A subclass says what one position costs. Every term appears in the output: `loss_diffusion`, those of `own_terms`,
    `loss_next_token`, `loss_schedule`, and their weighted sum `loss`.

    Args:
        levels: the law of training noise levels.
        self_conditioning: probability per row.
        next_token_weight: weight of the auxiliary loss (0: none is computed).
        schedule_weight: weight of a schedule's regression term; reaches the schedule's parameters only. 0: the schedule
            is left alone, its buffers too.
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

    @abstractmethod
    def token_losses(self, model: DiffusionLM, reading: Reading) -> Tensor:
        """(B, N, C) loss of each position; its mean over the counted ones is `loss_diffusion`."""

    def own_terms(self, model: DiffusionLM, batch: Batch, reading: Reading, seed: int) -> dict[str, Term]:
        """Further terms, by the name they are logged under."""
        return {}

    def gamma(self, model: DiffusionLM, u: Tensor) -> Gamma:
        """Level at schedule time u. No gradient: only the bound may move the ends of a learned path."""
        return model.schedule.gamma(u).detach()

    def draw(self, model: DiffusionLM, batch: Batch, seed: int, dim: int | None = None) -> RowNoise:
        """The batch's levels and noise, of `dim` coordinates (the model's)."""
        blocks, length = batch.canvas.shape[1:]
        # Where canvases differ in length, each one's own counts, as in sampling: what a row draws is its own affair.
        widths = None if batch.largest is None else (batch.canvas != model.pad_id).sum(-1)
        return self.levels.draw(
            batch.index,
            blocks,
            length,
            model.embedding.dim if dim is None else dim,
            seed,
            batch.canvas.device,
            batch.largest,
            widths,
        )

    def counts(self, model: DiffusionLM, batch: Batch, seed: int) -> dict[str, Tensor]:
        """What the means of the terms are taken over, by kind, of each row (B,): known before the model has run."""
        noise = self.draw(model, batch, seed, dim=0)
        text, counted = self._asked(model, batch, noise)
        kinds = {"moving": noise.weight * counted, "counted": counted, "text": text}
        found = {name: kind.flatten(1).sum(1) for name, kind in kinds.items()}
        return found | {"next_token": (next_tokens(model.pad_id, batch) != model.pad_id).sum(1)}

    def forward(self, model: DiffusionLM, batch: Batch, seed: int) -> ObjectiveOutput:
        noise = self.draw(model, batch, seed)
        context = model.encode_context(batch.context, (batch.context != model.pad_id).sum(1))
        reading = self._read(model, batch, noise, context)
        counts = noise.weight * reading.counted
        losses = self.token_losses(model, reading)
        terms = {"loss_diffusion": Term((losses * (counts / batch.over("moving", counts.sum()))).sum())}
        terms |= self.own_terms(model, batch, reading, seed)
        if self.next_token_weight and model.has_next_token_head and batch.context.shape[1] > 1:
            terms["loss_next_token"] = Term(next_token_loss(model, batch, context), self.next_token_weight)
        if model.training:
            self.levels.fit(noise.u, losses, reading.counted)
        if model.training and self.schedule_weight:
            fit = model.schedule.fit(_observed(model, reading))
            if fit is not None:
                own = reading.counted.sum().float()
                fit = fit if batch.means is None else fit * (own / batch.over("counted", own))
                terms["loss_schedule"] = Term(fit, self.schedule_weight)
        return total(terms)

    def _read(self, model: DiffusionLM, batch: Batch, noise: RowNoise, context: Context) -> Reading:
        valid = batch.canvas != model.pad_id
        text, counted = self._asked(model, batch, noise)
        x0 = model.embedding(batch.canvas)
        gamma = self.gamma(model, noise.u)
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
        return Reading(x0, noise.eps, noise.u, gamma, out, token_loss(out.logits, batch.canvas), text, counted)

    def _asked(self, model: DiffusionLM, batch: Batch, noise: RowNoise) -> tuple[Mask, Mask]:
        """`text` and `counted` of a `Reading`."""
        text = (batch.canvas != model.pad_id) & ~batch.given
        return text, text & (noise.u > 0) & (noise.u < 1)


def total(terms: dict[str, Term]) -> ObjectiveOutput:
    """Their weighted sum, and each of them by name."""
    loss = sum(term.value if term.weight == 1 else term.weight * term.value for term in terms.values())
    assert isinstance(loss, Tensor)
    return ObjectiveOutput(loss, {name: term.value.detach() for name, term in terms.items()} | {"loss": loss.detach()})


def _observed(model: DiffusionLM, reading: Reading) -> Observed:
    """What the schedule may learn from."""

    def rate() -> Tensor:
        with torch.no_grad():
            return diffusion_rate(squared_error(model, reading), reading.gamma)

    return Observed(reading.gamma.detach(), reading.cross_entropy.detach(), reading.counted, rate)


def squared_error(model: DiffusionLM, reading: Reading) -> Tensor:
    """‖x0 − x0_hat‖² of each position, (B, N, C)."""
    return (reading.x0 - model.x0_hat(reading.out)).square().sum(-1)
