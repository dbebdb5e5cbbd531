"""What sample.py writes of each text, and says of all of them."""

from pathlib import Path
from typing import Any

from celeris.evaluation.text_metrics import distinct, longest_run
from celeris.sampling import GenerateOutput, InfillOutput

LONG_RUN = 16  # more equal tokens in a row than this is no text


def record(out: GenerateOutput, row: int, seed: int, index: int) -> dict[str, Any]:
    """One text with what it took. Times are those of the batch it was written in, in seconds from its beginning."""
    tokens = out.sequences[row]
    found = {
        "index": index,
        "prompt": out.prompts[row],
        "text": out.texts[row],
        "finish_reason": out.finish_reasons[row],
        "stop": out.stops[row] if out.stops else None,
        "tokens": len(tokens),
        "nfe": out.nfe[row],
        "context_passes": out.context_passes[row],
        "tokens_per_forward": out.row_tokens_per_forward(row),
        "slid": out.slid[row] if out.slid else 0,
        "seconds": out.seconds,
        "first_block_seconds": out.first_block_seconds,
        "block_seconds": out.block_seconds,
        "seed": seed,
        "distinct_2": distinct([out.texts[row]], 2),
        "longest_run": longest_run(tokens),
    }
    if isinstance(out, InfillOutput):
        filled = sum(map(len, out.filled[row]))
        found |= {"tokens": filled, "fillings": out.fillings[row], "score": out.scores[row]}
    return found


def summarise(records: list[dict[str, Any]], seconds: float, output: Path | None) -> None:
    """Print how much was written, and what a reader should know of it."""
    tokens = sum(record["tokens"] for record in records)
    print(f"{len(records)} samples, {tokens} tokens in {seconds:.1f} s ({tokens / max(seconds, 1e-9):,.0f} tokens/s)")
    runs = [record["index"] + 1 for record in records if record["longest_run"] > LONG_RUN]
    if runs:
        print(
            f"LONG-RUN: more than {LONG_RUN} equal tokens in a row in {len(runs)} samples, first in number {runs[0]}."
        )
    slid = [record["index"] + 1 for record in records if record["slid"]]
    if slid:
        print(
            f"{len(slid)} samples outgrew the model's window (first number {slid[0]}): they were continued from their "
            "last tokens and have forgotten their beginning."
        )
    if output is not None:
        print(f"written to {output}")
