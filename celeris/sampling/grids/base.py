"""What a grid is: the canvas times a block is denoised at."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.noise import Schedule
from celeris.typing import Gamma


class Grid(ABC):
    """From a number of steps to canvas times 1 = t_0 > t_1 > … > t_n = 0.

    Levels are placed for a canvas whose positions move together; with stagger the same times are shown by its clock.
    """

    @abstractmethod
    def times(self, steps: int, schedule: Schedule, device: torch.device) -> Tensor:
        """(steps + 1,) float64."""


class LevelGrid(Grid):
    """A grid laid out in gamma between the schedule's ends. A new one needs only `levels`."""

    def times(self, steps: int, schedule: Schedule, device: torch.device) -> Tensor:
        ends = schedule.gamma(torch.tensor([0.0, 1.0], dtype=torch.float64, device=device))
        down = torch.linspace(0, 1, steps + 1, dtype=torch.float64, device=device)
        times = schedule.t(self.levels(down, ends[0], ends[1]))
        times[0], times[-1] = 1.0, 0.0  # whatever the inverse's last digit says
        return times

    @abstractmethod
    def levels(self, down: Tensor, low: Gamma, high: Gamma) -> Gamma:
        """gamma after the share `down` (n + 1,) of the steps: `high` at 0, `low` at 1."""


def check_times(times: Tensor, steps: int, name: str) -> None:
    """Refuse what no solver can walk along."""
    if times.shape != (steps + 1,) or times[0] != 1 or times[-1] != 0 or not (times[:-1] > times[1:]).all():
        raise CelerisError(
            f"{name} gave {len(times)} canvas times for {steps} steps; they must be {steps + 1}, strictly falling from "
            "1 to 0. Use fewer steps, or grid=quantiles."
        )
