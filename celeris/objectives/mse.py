"""Squared error of x0 with a rounding term (Diffusion-LM, 2205.14217)."""

import torch
from torch import Tensor

from celeris.batch import Batch
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.noise import add_noise, alpha_sigma
from celeris.noise.levels import LevelMixture
from celeris.objectives.objective import Objective, Reading, Term, squared_error
from celeris.objectives.tokens import token_loss
from celeris.objectives.weighting import Unit, Weighting
from celeris.rounding import tied_logits


class MeanSquaredError(Objective):
    """L_simple, end to end (2205.14217, section 4.1): three terms, means over positions.

        loss_diffusion   weighting(gamma, slope)·‖x0 − x0_hat‖²/D
        loss_rounding    −log softmax(z·tableᵀ + log prior)[token] at z = x0 + (sigma/alpha)·eps of u = 0
        loss_prior       ‖alpha_1·x0‖²/D, which keeps z_1 near the sampler's N(0, I)
        loss_anchor      −log p(token | x0_hat) on the denoiser's own estimate (Difformer 2212.09412, eq. 6), optional:
                         unlike the rounding term it still holds rows apart where the noise at u = 0 is small

    The squared error alone is zero for a table whose rows are all equal; the rounding term is what keeps them apart.
    Like the paper's it reads the clean end of the path without the denoiser, by the table itself.

    Args:
        levels, self_conditioning, next_token_weight, schedule_weight: as in `Objective`.
        rounding_weight: of `loss_rounding`; 0 (the term is then not computed) only with a frozen table.
        weighting: factor by level.
        anchor_weight: of `loss_anchor`; 0: it is not computed.
    """

    def __init__(
        self,
        levels: LevelMixture,
        self_conditioning: float = 0.0,
        next_token_weight: float = 0.5,
        schedule_weight: float = 1.0,
        rounding_weight: float = 1.0,
        weighting: Weighting | None = None,
        anchor_weight: float = 0.0,
    ) -> None:
        super().__init__(levels, self_conditioning, next_token_weight, schedule_weight)
        for name, value in (("rounding_weight", rounding_weight), ("anchor_weight", anchor_weight)):
            if value < 0:
                raise CelerisError(f"{name} is {value:g}; it must be at least 0.")
        self.rounding_weight, self.anchor_weight = rounding_weight, anchor_weight
        self.weighting = weighting or Unit()

    def token_losses(self, model: DiffusionLM, reading: Reading) -> Tensor:
        weight = self.weighting(reading.gamma, model.schedule.slope(reading.u).detach())
        return weight * squared_error(model, reading) / reading.x0.shape[-1]

    def own_terms(self, model: DiffusionLM, batch: Batch, reading: Reading, seed: int) -> dict[str, Term]:
        share = reading.text / batch.over("text", reading.text.sum().float())
        ends = self.gamma(model, torch.tensor([0.0, 1.0], device=reading.u.device))
        terms: dict[str, Term] = {}
        if self.rounding_weight:
            alpha = alpha_sigma(ends[0]).alpha
            clean = add_noise(reading.x0, ends[0].expand_as(reading.u), reading.eps) / alpha
            logits = tied_logits(clean, model.embedding.table, model.rounding.prior)
            rounding = (token_loss(logits, batch.canvas) * share).sum()
            terms["loss_rounding"] = Term(rounding, self.rounding_weight)
        elif any(p.requires_grad for p in model.embedding.parameters()):
            raise CelerisError(
                "rounding_weight is 0 and the embedding table is trained: the squared error is least when all its "
                "rows are equal. Set objective.rounding_weight to a positive number (1.0), or freeze the table."
            )
        if self.anchor_weight:
            counted = batch.over("counted", reading.counted.sum().float())
            anchor = (reading.cross_entropy * reading.counted).sum() / counted
            terms["loss_anchor"] = Term(anchor, self.anchor_weight)
        prior = (torch.sigmoid(-ends[1]) * reading.x0.square().mean(-1) * share).sum()
        return terms | {"loss_prior": Term(prior)}
