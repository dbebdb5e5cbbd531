"""The variational bound itself as the training loss (VDM 2107.00630; Plaid 2305.18619)."""

import torch
from torch import Tensor

from celeris.batch import Batch
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.noise.levels import LevelMixture, RowNoise
from celeris.noise.posterior import diffusion_rate, prior_kl
from celeris.objectives.objective import Objective, Reading, Term, squared_error
from celeris.streams import stream
from celeris.typing import Gamma, Mask


class VariationalBound(Objective):
    """diffusion + reconstruction + prior, each in nats per token, whose sum bounds −log p(tokens) from above.

        loss_diffusion        ½·exp(−gamma)·gamma'(u)·‖x0 − x0_hat‖², u uniform     (VDM eq. 17; Plaid section 3)
        loss_reconstruction   −log p(token | z_0)
        loss_prior            KL(q(z_1 | x0) ‖ N(0, I))

    A moving position's own u is uniform under every law of levels, so the mean of the first term over moving positions
    is its integral over the path. Where a law is also a path of the sampler (Together, Staggered) the sum is the bound
    of `celeris.evaluation.likelihood`; independent levels train the same denoiser on more states than a path visits.

    Reconstruction costs no pass of its own: as in Plaid's code some rows stand at u = 0. Here it is one of every
    `reconstruction_every`, drawn by chance, which counts that many times and so is unbiased (Plaid: an eighth in
    evaluation; in training a share that follows the spread of the two terms). The draw has no random number in common
    with the levels: rows left out by a rule that goes with theirs would leave a gap in the integral.

    The law of times must be uniform, or weighted back to it as `LossAware` is; under another the sum bounds nothing.

    The ends of a learned path get the gradient of the whole sum: through gamma in the weight, in z_0, z_u and z_1.

    Args:
        levels, self_conditioning, next_token_weight, schedule_weight: as in `Objective`.
        reconstruction_every: rows (by their number in the run) of which one is reconstructed, at least 2.
    """

    def __init__(
        self,
        levels: LevelMixture,
        self_conditioning: float = 0.25,
        next_token_weight: float = 0.5,
        schedule_weight: float = 1.0,
        reconstruction_every: int = 8,
    ) -> None:
        super().__init__(levels, self_conditioning, next_token_weight, schedule_weight)
        if reconstruction_every < 2:
            raise CelerisError(
                f"reconstruction_every is {reconstruction_every}; it must be at least 2: the bound has a diffusion "
                "term besides its reconstruction. 8 is a good start."
            )
        self.reconstruction_every = reconstruction_every

    def gamma(self, model: DiffusionLM, u: Tensor) -> Gamma:
        return model.schedule.gamma(u)

    def draw(self, model: DiffusionLM, batch: Batch, seed: int, dim: int | None = None) -> RowNoise:
        noise = super().draw(model, batch, seed, dim)
        return noise._replace(u=torch.where(self._at_data(batch, seed), 0.0, noise.u))

    def token_losses(self, model: DiffusionLM, reading: Reading) -> Tensor:
        return diffusion_rate(squared_error(model, reading), reading.gamma) * model.schedule.slope(reading.u)

    def own_terms(self, model: DiffusionLM, batch: Batch, reading: Reading, seed: int) -> dict[str, Term]:
        at_data = reading.text & self._at_data(batch, seed)
        tokens = batch.over("text", reading.text.sum().float())
        reconstruction = self.reconstruction_every * (reading.cross_entropy * at_data).sum() / tokens
        noisiest = self.gamma(model, reading.u.new_ones(()))
        prior = prior_kl(reading.x0.square().sum(-1), noisiest, model.embedding.dim).float()
        prior = (prior * reading.text).sum() / tokens
        return {"loss_reconstruction": Term(reconstruction), "loss_prior": Term(prior)}

    def _at_data(self, batch: Batch, seed: int) -> Mask:
        """(B, 1, 1) rows that stand at u = 0."""
        every = self.reconstruction_every
        chosen = [k % every == stream(seed, "reconstruction", k // every) % every for k in batch.index.tolist()]
        return torch.tensor(chosen, device=batch.canvas.device)[:, None, None]
