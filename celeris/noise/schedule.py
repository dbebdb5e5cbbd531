"""What a noise schedule is: an increasing map gamma(t) from t ∈ [0, 1], with its inverse and its slope."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from celeris.typing import Gamma, Mask


class Observed(NamedTuple):
    """What a training step saw of each position, detached; all tensors share one shape.

    Attributes:
        gamma: level it stood at.
        cross_entropy: nats of its token under the rounding distribution.
        counted: positions that took part in the loss.
        rate: → ½·exp(−gamma)·‖x0 − x0_hat‖², nats of the bound per unit of gamma (VDM 2107.00630, eq. 17); for an exact
            posterior it is d cross_entropy/d gamma (I-MMSE). Called only by schedules that need it.
    """

    gamma: Gamma
    cross_entropy: Tensor
    counted: Mask
    rate: Callable[[], Tensor]


class Schedule(nn.Module, ABC):
    """gamma(t), t = 0 is data and t = 1 is noise. One subclass a file; a fixed one needs only the three maps."""

    @abstractmethod
    def gamma(self, t: Tensor) -> Gamma:
        """gamma at t ∈ [0, 1], strictly increasing."""

    @abstractmethod
    def t(self, gamma: Gamma) -> Tensor:
        """Inverse of `gamma`, clipped to [0, 1]."""

    @abstractmethod
    def slope(self, t: Tensor) -> Tensor:
        """dgamma/dt > 0."""

    def fit(self, seen: Observed) -> Tensor | None:
        """Learn from what a step saw; a fixed schedule learns nothing.

        Returns:
            A scalar term for the training loss (its gradient reaches this schedule only), or None when the fit lives
            in buffers.
        """
        return None
