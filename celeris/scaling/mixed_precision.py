"""What autocast does on a GPU, for operations that are counted on a CPU."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

FLOAT32 = {F.layer_norm, F.rms_norm, torch.rms_norm, torch.layer_norm, F.softmax, torch.softmax, Tensor.softmax}
FLOAT32 |= {F.cross_entropy, torch.cumsum, Tensor.cumsum, torch.sum, Tensor.sum}
"""Operations of the models here that autocast computes in float32 on CUDA, and not on a CPU (torch's lists)."""


class AsOnAGpu(TorchFunctionMode):
    """Inside, an operation under a CPU's autocast takes and keeps the types that it would on a GPU.

    It has to stand around backward, too: layers that are computed again are under autocast again.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in FLOAT32 and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree_map(_wide, (args, kwargs))
        return func(*args, **(kwargs or {}))


def _wide(x: Any) -> Any:
    return x.float() if isinstance(x, Tensor) and x.dtype == torch.bfloat16 else x
