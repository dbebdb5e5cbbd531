"""Cross-entropy of the tokens under the denoiser's rounding distribution (CDCD 2211.15089; LangFlow 2604.11748)."""

from torch import Tensor

from celeris.model import DiffusionLM
from celeris.noise.levels import LevelMixture
from celeris.objectives.objective import Objective, Reading
from celeris.objectives.weighting import Weighting


class CrossEntropy(Objective):
    """−log p(token | z) in nats.

    Args:
        levels, self_conditioning, next_token_weight, schedule_weight: as in `Objective`.
        weighting: factor by level; None is one everywhere, and the loss then is the plain cross-entropy.
    """

    def __init__(
        self,
        levels: LevelMixture,
        self_conditioning: float = 0.5,
        next_token_weight: float = 0.5,
        schedule_weight: float = 1.0,
        weighting: Weighting | None = None,
    ) -> None:
        super().__init__(levels, self_conditioning, next_token_weight, schedule_weight)
        self.weighting = weighting

    def token_losses(self, model: DiffusionLM, reading: Reading) -> Tensor:
        if self.weighting is None:
            return reading.cross_entropy
        return self.weighting(reading.gamma, model.schedule.slope(reading.u).detach()) * reading.cross_entropy
