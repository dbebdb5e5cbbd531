"""Muon: momentum, orthogonalised (Jordan et al., https://kellerjordan.github.io/posts/muon/).

`torch.optim.Muon` does the same arithmetic one matrix at a time and always in bf16. Here equal shapes go through the
Newton–Schulz iteration as one batch (a small trunk is many small matrices, whose launches cost more than their
products), and a CPU without bf16 instructions computes in float32. A test holds the two together.

Sharded matrices (`celeris.training.sharding`) get the update of whole ones.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.optim import Optimizer

from celeris.training.sharding import local
from celeris.typing import Float

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic with the steepest slope at zero (the Muon post)


Matrices = Float[Tensor, "n rows cols"]


def orthogonalize(matrices: Matrices, steps: int, dtype: torch.dtype) -> Matrices:
    """Newton–Schulz: U·S·Vᵀ → U·S'·Vᵀ with every singular value S' near 1 (roughly 0.7 to 1.2).

    Args:
        matrices: (n, rows, cols), each handled by itself.
        steps: iterations.
        dtype: of the products.
    """
    a, b, c = _COEFFICIENTS
    wide = matrices.size(-2) <= matrices.size(-1)
    x = (matrices if wide else matrices.mT).to(dtype)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT


def product_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the device multiplies it natively, else float32."""
    if device.type == "cuda":
        return torch.bfloat16
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return torch.bfloat16 if native else torch.float32


class Muon(Optimizer):
    """Muon for 2-D weights of hidden layers, with Nesterov momentum and the √max(1, rows/cols) scale of the post.

    Args:
        params: parameters or groups of 2-D matrices.
        lr: step size in units of the orthogonalised update (0.02 is usual).
        momentum: of the running mean of gradients.
        weight_decay: decoupled.
        steps: Newton–Schulz iterations.

    Raises:
        ValueError: a parameter is not a matrix.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 5,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps})
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(f"Muon takes matrices; a parameter has shape {tuple(p.shape)}.")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            by_shape: dict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[(p.shape, p.device, p.dtype)].append(p)
            for same in by_shape.values():
                self._step_equal_shapes(same, group)
        return loss

    def _step_equal_shapes(self, params: list[Tensor], group: dict[str, Any]) -> None:
        momentum, lr = group["momentum"], group["lr"]
        grads = [local(p.grad) for p in params if p.grad is not None]
        buffers = []
        for p in params:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
            buffers.append(local(self.state[p]["momentum_buffer"]))
        torch._foreach_lerp_(buffers, grads, 1 - momentum)
        nesterov = torch.stack(list(torch._foreach_lerp(grads, buffers, momentum)))
        dtype = product_dtype(params[0].device)
        if isinstance(params[0], DTensor):
            update = _orthogonalize_shards(nesterov, params[0], group["steps"], dtype)
        else:
            update = orthogonalize(nesterov, group["steps"], dtype)
        rows, cols = params[0].shape
        own = [local(p) for p in params]
        torch._foreach_mul_(own, 1 - lr * group["weight_decay"])
        scale = -lr * max(1.0, rows / cols) ** 0.5
        torch._foreach_add_(own, [u.to(p.dtype) for u, p in zip(update, own, strict=True)], alpha=scale)


def _orthogonalize_shards(rows: Matrices, like: DTensor, steps: int, dtype: torch.dtype) -> Matrices:
    """`orthogonalize` of matrices whose rows lie on several ranks: (n, own rows, cols) → the same.

    Each rank is handed n/W whole matrices, iterates on those, and hands the rows back. A step sends every matrix
    across twice in the products' dtype (two all-to-alls of 1/W of the matrices' bytes per rank; gloo has none and
    gathers, W times as much), and its products are shared among the ranks.

    Args:
        rows: this rank's rows of each matrix.
        like: one of the matrices, for its mesh and shape.
    """
    mesh, shape = like.device_mesh, torch.Size([len(rows), *like.shape])
    stride = (like.shape[0] * like.shape[1], like.shape[1], 1)
    by_rows = DTensor.from_local(rows.to(dtype), mesh, [Shard(1)], run_check=False, shape=shape, stride=stride)
    mine = by_rows.redistribute(placements=[Shard(0)]).to_local()
    done = orthogonalize(mine, steps, dtype) if len(mine) else mine
    whole = DTensor.from_local(done.contiguous(), mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)
    return whole.redistribute(placements=[Shard(1)]).to_local()
