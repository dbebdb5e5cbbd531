"""What a noise schedule is: an increasing map gamma(t) from t ∈ [0, 1], with its inverse and its slope."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from celeris.typing import Gamma, Mask


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

    def fit(self, gamma: Gamma, loss: Tensor, counted: Mask) -> Tensor | None:
        """Learn from the per-token `loss` (nats) seen at `gamma` where `counted`; a fixed schedule learns nothing.

        Returns:
            A scalar term for the training loss (its gradient reaches this schedule only), or None when the fit lives
            in buffers.
        """
        return None
