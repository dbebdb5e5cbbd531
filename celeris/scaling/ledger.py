"""Book-keeping of a piece of training: arithmetic and traffic of every operation, and the bytes alive at any moment.

It works on real tensors and on fake ones (`torch._subclasses.FakeTensor`), which have shapes and no memory. So the step
of a model that fits nowhere is counted by the same code as one that is run, and a test compares the two.
"""

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class Work(NamedTuple):
    """One operation.

    Attributes:
        flops: of its matrix products (a multiplication and an addition are two); 0 for element-wise work.
        traffic: bytes of the tensors it reads and writes.
        half: whether it multiplies in 16 bits.
        learned: whether gradients were being recorded, or computed; not in a self-conditioning pass.
    """

    flops: float
    traffic: float
    half: bool
    learned: bool


class Ledger(TorchDispatchMode):
    """Inside `with ledger:` every operation is entered.

    Attributes:
        work: how often each `Work` was done; views and bare allocations are none.
        live: bytes of storages made inside that are still alive, without those that were `released`.
        peak: the most that `live` has been.
        learning: set in backward, where no gradients are recorded and all work is for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.learning = False
        self.work: Counter[Work] = Counter()
        self.live = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        known = {x.untyped_storage()._cdata for x in read}
        fresh = [x for x in made if x.untyped_storage()._cdata not in known]
        for x in fresh:
            self._enter(x.untyped_storage())
        if not (fresh or func._schema.is_mutable) or func._overloadpacket in _ALLOCATIONS:
            return out
        count = _flops_of(func)
        flops = count(*args, **kwargs, out_val=out) if count else 0
        half = bool(read) and read[min(1, len(read) - 1)].dtype in _HALF  # the second factor, or one behind a bias
        learned = self.learning or torch.is_grad_enabled()
        self.work[Work(flops, sum(map(_moved, (*read, *made))), half, learned)] += 1
        return out

    def release(self, tensor: Tensor) -> None:
        """Stop counting the storage of `tensor` (a gradient, say, which has an account of its own)."""
        self.live -= self._sizes.pop(tensor.untyped_storage()._cdata, 0)

    def _enter(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._leave, key)

    def _leave(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)


def _moved(x: Tensor) -> int:
    """Bytes behind a tensor: an expanded one is read from what it has."""
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())


def attention_flops(query: Tensor, key: Tensor, value: Tensor, *_: Any, is_causal: bool = False, **__: Any) -> int:
    """Of q·kᵀ and of the weights times v, for (B, h, Tq, d), (B, h, Tk, d) and (B, h, Tk, dv).

    A causal kernel leaves out what lies above the diagonal; under a written mask everything is computed.
    """
    rows, heads, queries, dim = query.shape
    seen = (queries + 1) / 2 if is_causal else key.shape[-2]
    return round(2 * rows * heads * queries * seen * (dim + value.shape[-1]))


def _attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, **_: Any) -> int:
    return attention_flops(q, k, v, is_causal=causal)


def _attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dropout: float, causal: bool, **_: Any
) -> int:
    """Scores once more and the four products of their gradients: 5 products where forward has 2."""
    return attention_flops(q, k, v, is_causal=causal) * 5 // 2


def _flops_of(func: Any) -> Callable[..., int] | None:
    packet = func._overloadpacket
    return _OWN.get(packet) or flop_registry.get(packet)


_aten = torch.ops.aten
_OWN: dict[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
_ALLOCATIONS = {_aten.empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty, _aten.new_empty_strided}
_HALF = (torch.bfloat16, torch.float16)
