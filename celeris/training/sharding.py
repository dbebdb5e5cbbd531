"""Fully sharded data parallelism on torch's `fully_shard` (FSDP2): what is cut, what is gathered when, and what is not.

At rest every rank holds 1/W of each parameter (cut along its first axis), of its gradient, of the average and of the
optimizer's state, all in float32. A micro-batch gathers the layers one by one, ahead of their use and in the compute
dtype, and keeps them until the step's gradients are there; each layer's gradient is reduced and scattered as soon as
its backward is done.

Layers are not freed between forward and backward. A layer runs two or three times per micro-batch (context, canvas,
self-conditioning), how often depends on the rows a rank has drawn, and ranks that gather a different number of times
wait for each other for ever. So the collectives of a step must not depend on the data, and here they do not.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from celeris.language_model import passes


class Sharding:
    """Cuts `root` in place; `root.forward` then is what runs with whole weights.

    Args:
        root: module whose forward calls `gather` first, on all ranks alike.
        layers: modules gathered and reduced one by one; the rest of `root` is one more unit, always float32.
        replicated: parameters left whole on every rank, for a handful of numbers (a schedule's fit, scalars).
        mesh: one axis, over all ranks.
        dtype: in which the layers compute (their gradients are reduced in float32); None: float32.
    """

    def __init__(
        self,
        root: nn.Module,
        layers: Sequence[nn.Module],
        replicated: Sequence[nn.Parameter],
        mesh: DeviceMesh,
        dtype: torch.dtype | None = None,
    ) -> None:
        apart = {id(p) for part in layers for p in part.parameters()} | {id(p) for p in replicated}
        trained = {name: p for name, p in root.named_parameters() if p.requires_grad}
        self._common = [name for name, p in trained.items() if id(p) not in apart]
        self._replicated = [p for p in replicated if p.requires_grad]
        # Inputs keep their dtype: autocast decides per operation, as it does without sharding.
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
        whole, ignored = MixedPrecisionPolicy(reduce_dtype=torch.float32), set(replicated)
        for layer in layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=False, mp_policy=policy, ignored_params=ignored)
            for name in passes(layer):
                register_fsdp_forward_method(layer, name)
        fully_shard(root, mesh=mesh, reshard_after_forward=False, mp_policy=whole, ignored_params=ignored)
        self._units = [module for module in [root, *layers] if isinstance(module, FSDPModule)]
        for unit in self._units:
            unit.set_reshard_after_backward(False)
        # A parameter that a rank's rows had no use for takes part with zeros.
        self._units[0].set_reduce_scatter_unused_params(True, recurse=False)
        self._root, self._group = root, mesh.get_group()
        self._used: set[str] = set()
        self._watched = False
        self._gathering: list[Any] = []

    def gather(self) -> None:
        """Inside `root.forward`: begin to gather every layer that is not whole yet."""
        if not self._watched:
            self._watched = True
            whole = dict(self._root.named_parameters())
            for name in self._common:
                whole[name].register_post_accumulate_grad_hook(partial(self._note, name))
        self._gathering = [unit.unshard(async_op=True) for unit in self._units[1:]]

    def _note(self, name: str, _: Tensor) -> None:
        self._used.add(name)

    def release(self) -> None:
        """Outside `root.forward`: let the gathered weights go; parameters are shards again."""
        for handle in self._gathering:  # a rank without rows of its own has not waited for the layers
            handle.wait()
        self._gathering = []
        for unit in self._units:
            unit.reshard()

    @torch.no_grad()
    def settle_gradients(self) -> None:
        """After the last backward of a step: shards with their gradients, the mean over ranks.

        A parameter that no rank had a use for gets no gradient, as it would without sharding: zeros would still move
        it, by its momentum.
        """
        self.release()
        own = dict(self._root.named_parameters())
        parameters = [own[name] for name in self._common]
        flags = [name in self._used for name in self._common] + [p.grad is not None for p in self._replicated]
        self._used.clear()
        device = parameters[0].device if parameters else torch.device("cpu")
        used = torch.tensor(flags, dtype=torch.int32, device=device)
        dist.all_reduce(used, op=dist.ReduceOp.MAX, group=self._group)
        for p, is_used in zip([*parameters, *self._replicated], used.tolist(), strict=True):
            if not is_used:
                p.grad = None
        moved = [p for p, is_used in zip(self._replicated, used.tolist()[len(parameters) :], strict=True) if is_used]
        for p in moved:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad, group=self._group)
            p.grad /= self._group.size()


def local(tensor: Tensor) -> Tensor:
    """This rank's part, sharing memory; the tensor itself where it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full(tensor: Tensor) -> Tensor:
    """The whole tensor, gathered on all ranks together; the tensor itself where it is not sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def is_sharded(module: nn.Module) -> bool:
    """Whether a parameter of `module` is in shards."""
    return any(isinstance(p, DTensor) for p in module.parameters())
