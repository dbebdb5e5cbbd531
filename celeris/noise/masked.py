"""Levels of masked language modelling: a position is clean or, nearly, pure noise."""

import torch
from torch import Tensor

from celeris.errors import CelerisError


class Masked:
    """Each position of a block is noise with probability t, else clean: absorbing diffusion (MDLM, 2406.07524).

    The noise says nothing about the token, so all that is learned is how to use the others.

    Args:
        high: schedule time of the noise, in (0, 1). Positions at exactly 1 wait for their turn and earn no loss.
    """

    def __init__(self, high: float = 0.999) -> None:
        if not 0 < high < 1:
            raise CelerisError(f"high is {high:g}; it must lie between 0 and 1, both excluded (0.999: nearly noise).")
        self.high = high

    def __call__(self, t: Tensor, free: Tensor) -> Tensor:
        return torch.where(free < t[..., None], self.high, torch.zeros_like(free))
