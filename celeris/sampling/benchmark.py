"""Time per block against the blocks already committed: `python -m celeris.sampling.benchmark`.

Every block reads its context from the cache, so its time should be constant up to the attention over that context.
"""

import argparse
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.sampling.generate import stream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="export folder of a diffusion model")
    for name, value in (("rows", 1), ("steps", 8), ("repeats", 5), ("block", 0), ("tokens", 0)):
        parser.add_argument(f"--{name}", type=int, default=value, help="0: the model's own" if not value else None)
    a = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = DiffusionLM.from_pretrained(a.checkpoint, device)
    block, tokens = a.block or model.block_length, a.tokens or model.max_length
    table = Table(
        title=f"{a.rows} rows, blocks of {block}, {a.steps} steps ({device}, {torch.get_num_threads()} threads)"
    )
    for column in ("committed blocks", "committed tokens", "ms per block", "of the first"):
        table.add_column(column, justify="right")
    times = block_times(model, a.rows, block, tokens, a.steps, a.repeats)
    for number, seconds in enumerate(times):
        table.add_row(str(number), str(number * block), f"{1e3 * seconds:.1f}", f"{seconds / times[0]:.2f}")
    Console().print(table)


def block_times(model: DiffusionLM, rows: int, block: int, tokens: int, steps: int, repeats: int) -> list[float]:
    """Seconds of each block, its denoising and the commit before it: the median of `repeats` runs after a warm-up."""
    runs = []
    for _ in range(repeats + 1):
        pieces = stream(
            model,
            [""] * rows,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            block_length=block,
            num_inference_steps=steps,
        )
        for _piece in pieces:
            pass
        ends = [pieces.output.prefill_seconds, *pieces.output.block_seconds]
        runs.append([end - begin for begin, end in zip(ends, ends[1:], strict=False)])
    return [median(times) for times in zip(*runs[1:], strict=True)]


if __name__ == "__main__":
    try:
        main()
    except CelerisError as error:
        raise SystemExit(f"error: {error}") from None
