"""Arithmetic of a call, counted, and the most that the same device does in a large matrix product."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from celeris.sampling.device import synchronize

DEFINITION = (
    "FLOPs of matrix products, convolutions and attention in one call (a multiplication and an addition count as two; "
    "masked scores are counted, element-wise work is not), divided by its output tokens; share of peak: FLOPs a second "
    "divided by those of a large square matrix product in the same dtype, on the same device and threads"
)


def attention_flops(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], *_: Any, **__: Any) -> int:
    """Of q·kᵀ and of the weights times v, for shapes (B, h, Tq, d), (B, h, Tk, d) and (B, h, Tk, dv)."""
    rows, heads, queries, dim = query
    return 2 * rows * heads * queries * key[-2] * (dim + value[-1])


# torch counts its fused attention on a GPU, but not the kernel it has for CPUs.
UNCOUNTED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention_flops}


def count_flops(call: Callable[[], Any]) -> tuple[int, Any]:
    """FLOPs of one call, and what it returned."""
    with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
        result = call()
    return counter.get_total_flops(), result


def matmul_peak(device: torch.device, dtype: torch.dtype, size: int | None = None, repeats: int = 8) -> float:
    """FLOP/s of the best of `repeats` products of two (size, size) matrices, after one that does not count.

    Args:
        size: 1,024 on a CPU, 8,192 elsewhere when None.
    """
    size = size or (1024 if device.type == "cpu" else 8192)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = a @ b
    best = float("inf")
    for _ in range(repeats):
        synchronize(device)
        began = time.perf_counter()
        torch.matmul(a, b, out=out)
        synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best
