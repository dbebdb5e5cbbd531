"""Bytes of what a run keeps between two steps: weights, gradients, optimizer, average."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class States:
    """Bytes, of one replica that is not sharded.

    Attributes:
        parameters, buffers, gradients, optimizer, average: of the model's tensors, as they are.
        layers: the parameters of the trunk's repeated layers, of all of them; largest_layer: of the largest one.
    """

    parameters: int
    buffers: int
    gradients: int
    optimizer: int
    average: int
    layers: int
    largest_layer: int

    @property
    def common(self) -> int:
        """Parameters outside the layers: table, head, what enters and leaves the trunk."""
        return self.parameters - self.layers

    @property
    def total(self) -> int:
        return self.parameters + self.buffers + self.gradients + self.optimizer + self.average


def count_states(
    model: nn.Module, layers: Sequence[nn.Module], optimizer: Optimizer, average: Iterable[Tensor]
) -> States:
    """Of real or fake tensors, after one step; gradients count where they are.

    Args:
        layers: of the trunk of `model`.
        average: tensors of the moving average of the weights.
    """
    parameters, each = list(model.parameters()), [_bytes(layer.parameters()) for layer in layers]
    return States(
        parameters=_bytes(parameters),
        buffers=_bytes(model.buffers()),
        gradients=_bytes(p.grad for p in parameters if p.grad is not None),
        optimizer=_bytes(x for x in tree_leaves(list(optimizer.state.values())) if isinstance(x, Tensor)),
        average=_bytes(average),
        layers=sum(each),
        largest_layer=max(each, default=0),
    )


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)
