"""Time the attention back-ends on training's canvas attention: `python -m celeris.denoiser.benchmark`.

Back-ends are interleaved, so that a noisy machine is noisy for all of them; what counts is the ratio in one run.
"""

import argparse
import time
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from celeris.denoiser.attention import BACKENDS, Backend, Canvas, flash_varlen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("rows", 8), ("heads", 4), ("length", 256), ("block", 16), ("head_dim", 32), ("repeats", 15)):
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start = torch.arange(0, a.length, a.block, device=device).expand(a.rows, -1)
    visible = Canvas(start, None, a.length, a.block)
    names = [n for n in BACKENDS if n != "auto" and (n != "flash" or (flash_varlen() and device == "cuda"))]
    table = Table(title=f"forward + backward, ms, median of {a.repeats} ({device}, {torch.get_num_threads()} threads)")
    for column in ("dtype", *names):
        table.add_column(column)
    for dtype in (torch.float32, torch.bfloat16):
        q = torch.randn(a.rows, a.heads, a.length, a.head_dim, device=device, dtype=dtype, requires_grad=True)
        k, v = (torch.randn_like(torch.cat([q, q], 2)).requires_grad_() for _ in range(2))
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(a.repeats + 2):  # the first two warm up
            for name in names:
                times[name].append(_once(BACKENDS[name], (q, k, v), visible))
        table.add_row(str(dtype).removeprefix("torch."), *(f"{1e3 * median(times[name][2:]):.2f}" for name in names))
    Console().print(table)


def _once(attend: Backend, qkv: tuple[Tensor, Tensor, Tensor], visible: Canvas) -> float:
    began = time.perf_counter()
    attend(*qkv, visible).sum().backward()
    if qkv[0].is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
