"""LoRA (2106.09685): the trunk's matrices stay, and each learns a low-rank change that an export adds to it."""

import math
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from celeris.errors import CelerisError
from celeris.language_model import LanguageModel

Model = TypeVar("Model", bound=LanguageModel)


class LowRank(nn.Module):
    """W ↦ W + (alpha/rank)·B·A, with B = 0 at the start, so that nothing changes before the first step.

    Args:
        shape: of W, (out, in).
        rank: of the change; at most the smaller side of W.
        alpha: scale of it.
    """

    def __init__(self, shape: tuple[int, int], rank: int, alpha: float) -> None:
        super().__init__()
        rank = min(rank, *shape)
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.empty(rank, shape[1]))
        self.up = nn.Parameter(torch.zeros(shape[0], rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up @ self.down)


def low_rank(model: Model, rank: int = 8, alpha: float = 16.0) -> Model:
    """Freeze `model` and give every linear layer of its trunk a low-rank change, in place.

    Args:
        rank: of each change.
        alpha: its scale is alpha/rank.

    Raises:
        CelerisError: a rank below 1.
    """
    if rank < 1:
        raise CelerisError(f"rank is {rank}; a low-rank change needs at least 1.")
    model.requires_grad_(False)
    for layer in [layer for layer in model.trunk.modules() if isinstance(layer, nn.Linear)]:
        out, inside = layer.weight.shape
        change = LowRank((out, inside), rank, alpha).to(layer.weight.device)
        parametrize.register_parametrization(layer, "weight", change)
    return model
