"""Even steps of the schedule's own time."""

import torch
from torch import Tensor

from celeris.noise import Schedule
from celeris.sampling.grids.base import Grid


class Quantiles(Grid):
    """t_i = 1 − i/n: quantiles of the schedule. Under a fitted one every step gains the same information."""

    def times(self, steps: int, schedule: Schedule, device: torch.device) -> Tensor:
        return 1 - torch.arange(steps + 1, dtype=torch.float64, device=device) / steps
