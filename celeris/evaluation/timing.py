"""The arithmetic of speed: what a timed call was, what repeats of it say, and in which order calls are made.

Prompt tokens, EOS, PAD and whatever stands behind a row's EOS are work, not output (Fast-dLLM#15, #49, #81).
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from celeris.evaluation.record import Output
from celeris.evaluation.text_metrics import entropy
from celeris.streams import generator

DEFINITIONS = {
    "output_tokens": "tokens of all returned texts, cut at their EOS, without prompt, EOS and PAD",
    "output_tokens_per_second": "output tokens divided by the wall-clock seconds of the whole calls, prefill of the "
    "prompt included; warm-up calls excluded, device synchronised before and after each call",
    "output_tokens_per_second_without_prefill": "the same output tokens divided by the seconds after the prefill (the "
    "prompt read into the context and, where text is written token by token, the logits of the first token)",
    "time_to_first_block": "seconds from the call to its first committed text: a block of canvas, a token where text "
    "is written token by token, the whole text where nothing is committed before the end",
    "latency": "seconds of a call that writes `batch` rows of `length` tokens; percentiles over the timed calls, "
    "interpolated, so that p99 of a few calls is about the slowest of them",
    "forwards": "passes of the network, denoiser calls and context passes, of the row of a call that took most; rows "
    "share passes; mean over the timed calls",
    "tokens_per_forward": "output tokens of a row divided by the passes that row took, all rows and calls together",
    "relative": "tokens/s divided by those of `relative_to` at the same batch and lengths in the same round; median, "
    "least and greatest of the rounds",
    "entropy": "entropy (nats) of the token histogram of one row, mean over rows",
}


def real_tokens(sequence: Sequence[int], eos_id: int, pad_id: int) -> list[int]:
    """The sequence up to its first EOS, PAD left out."""
    kept: list[int] = []
    for token in sequence:
        if int(token) == eos_id:
            break
        if int(token) != pad_id:
            kept.append(int(token))
    return kept


@dataclass(frozen=True)
class Call:
    """One timed call.

    Attributes:
        seconds: of the whole call, measured from outside.
        prefill_seconds, first_block_seconds: as the sampler says; None where it does not.
        sequences: real tokens of each row.
        denoiser_calls, context_passes: of the row that took most; rows share them.
        row_passes: passes of either kind, summed over rows.
    """

    seconds: float
    prefill_seconds: float | None
    first_block_seconds: float | None
    sequences: list[list[int]]
    denoiser_calls: int
    context_passes: int
    row_passes: int

    @property
    def tokens(self) -> int:
        return sum(map(len, self.sequences))


def time_call(
    call: Callable[[], Output],
    *,
    eos_id: int,
    pad_id: int,
    synchronize: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Call:
    """Make one call and time it; `synchronize` waits for the device before either reading of the clock."""
    synchronize()
    began = clock()
    output = call()
    synchronize()
    seconds = clock() - began
    nfe = [int(n) for n in output.nfe]
    passes = [int(n) for n in getattr(output, "context_passes", [])]
    return Call(
        seconds,
        getattr(output, "prefill_seconds", None),
        getattr(output, "first_block_seconds", None),
        [real_tokens(sequence, eos_id, pad_id) for sequence in output.sequences],
        max(nfe, default=0),
        max(passes, default=0),
        sum(nfe) + sum(passes),
    )


def rate(tokens: float, seconds: float) -> float:
    """Tokens per second, with a floor of a nanosecond under the time."""
    return tokens / max(seconds, 1e-9)


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the order statistics, like numpy's default; `values` must not be empty."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def summarize(calls: Sequence[Call]) -> dict[str, Any]:
    """Figures of the timed calls of one setting, plain JSON values; None where the sampler does not say."""
    seconds = [call.seconds for call in calls]
    rates = [rate(call.tokens, call.seconds) for call in calls]
    tokens, rows = sum(call.tokens for call in calls), [row for call in calls for row in call.sequences]
    prefills = [call.prefill_seconds for call in calls if call.prefill_seconds is not None]
    firsts = [call.first_block_seconds for call in calls if call.first_block_seconds is not None]
    after = sum(seconds) - sum(prefills) if len(prefills) == len(calls) else None
    denoiser, context = (
        statistics.fmean(getattr(call, name) for call in calls) for name in ("denoiser_calls", "context_passes")
    )
    passes = sum(call.row_passes for call in calls)
    return {
        "output_tokens": tokens,
        "output_tokens_per_second": rate(tokens, sum(seconds)),
        "output_tokens_per_second_sd": statistics.stdev(rates) if len(rates) > 1 else None,
        "output_tokens_per_second_min": min(rates),
        "output_tokens_per_second_max": max(rates),
        "output_tokens_per_second_without_prefill": None if after is None else rate(tokens, after),
        "prefill_seconds": statistics.fmean(prefills) if prefills else None,
        "time_to_first_block_p50": percentile(firsts, 0.5) if firsts else None,
        **{f"latency_p{p}": percentile(seconds, p / 100) for p in (50, 90, 99)},
        "forwards": denoiser + context,
        "denoiser_calls": denoiser,
        "context_passes": context,
        "tokens_per_forward": tokens / passes if passes else None,
        "seconds": seconds,
        "tokens": [call.tokens for call in calls],
        "entropy": statistics.fmean(map(entropy, rows)) if rows else 0.0,
    }


def rounds(count: int, repeats: int, seed: int) -> list[list[int]]:
    """The order in which `count` settings are called in each of `repeats` rounds, every round shuffled anew.

    A machine that is slow for a while is then slow for all settings alike, and none always follows the same other.
    """
    return [
        torch.randperm(count, generator=generator(seed, "order of timed calls", number)).tolist()
        for number in range(repeats)
    ]


def relative(calls: Sequence[Call], baseline: Sequence[Call] | None) -> dict[str, float | None]:
    """Median, least and greatest over rounds of tokens/s relative to the baseline's; None where it wrote nothing."""
    ratios = (
        []
        if baseline is None
        else [
            rate(own.tokens, own.seconds) / rate(other.tokens, other.seconds)
            for own, other in zip(calls, baseline, strict=True)
            if other.tokens
        ]
    )
    if not ratios:
        return {"relative": None, "relative_min": None, "relative_max": None}
    return {"relative": statistics.median(ratios), "relative_min": min(ratios), "relative_max": max(ratios)}
