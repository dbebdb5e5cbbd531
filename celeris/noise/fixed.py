"""What the closed-form schedules share: a path of the literature in its own time, run between two finite levels."""

import math
from abc import abstractmethod

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.noise.schedule import Schedule
from celeris.typing import Gamma


class FixedSchedule(Schedule):
    """gamma(t) = the paper's gamma(τ) at τ = (1 − t)·τ(gamma_min) + t·τ(gamma_max).

    Most papers reach gamma = ±∞ at the ends of their own time τ. Here an affine map of τ, forwards or backwards as the
    paper's time runs, stops at two finite levels instead; between them every level is the paper's own. A subclass sets
    its attributes, calls `between`, and gives the three maps below in float64.
    """

    start: float
    end: float

    def between(self, gamma_min: float, gamma_max: float) -> None:
        """Set the levels at t = 0 and t = 1.

        Raises:
            CelerisError: the levels are not finite and increasing, or the path does not reach them.
        """
        if not (math.isfinite(gamma_min) and math.isfinite(gamma_max) and gamma_min < gamma_max):
            raise CelerisError(
                f"{type(self).__name__} goes from gamma {gamma_min:g} to {gamma_max:g}; both ends must be finite and "
                "the first the smaller: raise gamma_max or lower gamma_min."
            )
        self.start, self.end = self.time_of(torch.tensor([gamma_min, gamma_max], dtype=torch.float64)).tolist()

    def paper_time(self, t: Tensor) -> Tensor:
        """τ at t, float64."""
        t = t.double().clamp(0, 1)
        return (1 - t) * self.start + t * self.end

    @abstractmethod
    def gamma_of(self, time: Tensor) -> Gamma:
        """The paper's −log-SNR at its own time."""

    @abstractmethod
    def time_of(self, gamma: Gamma) -> Tensor:
        """Inverse of `gamma_of`."""

    @abstractmethod
    def slope_of(self, time: Tensor) -> Tensor:
        """Derivative of `gamma_of`."""

    def gamma(self, t: Tensor) -> Gamma:
        return self.gamma_of(self.paper_time(t)).to(t.dtype)

    def t(self, gamma: Gamma) -> Tensor:
        time = self.time_of(gamma.double())
        return ((time - self.start) / (self.end - self.start)).clamp(0, 1).to(gamma.dtype)

    def slope(self, t: Tensor) -> Tensor:
        return ((self.end - self.start) * self.slope_of(self.paper_time(t))).to(t.dtype)
