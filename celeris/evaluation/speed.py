"""Output tokens per second, defined: tokens of the text that comes out, and nothing else.

Prompt tokens, EOS, PAD and whatever stands behind a row's EOS are work, not output (Fast-dLLM#15, #49, #81).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import torch

from celeris.evaluation.record import AUTOREGRESSIVE, Output, Section, Subject, Table, describe_solver, synchronize
from celeris.evaluation.text_metrics import entropy
from celeris.noise.path import fitting_stagger
from celeris.sampling import DDIM, Solver

DEFINITION = (
    "output tokens/s = tokens of all returned texts, cut at their EOS, without prompt, EOS and PAD, divided by "
    "wall-clock seconds of the whole call (prompt included in the time); warm-up calls excluded, device synchronised"
)


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
class Timing:
    """Repeated calls of one setting.

    Attributes:
        seconds: of each timed call.
        output_tokens: real tokens over all timed calls.
        entropy: mean entropy (nats) of the token histograms of the texts: speed is never printed without it.
    """

    seconds: list[float]
    output_tokens: int
    entropy: float
    output_tokens_per_second: float = field(init=False)
    latency_p50: float = field(init=False)
    latency_p90: float = field(init=False)

    def __post_init__(self) -> None:
        times = torch.tensor(self.seconds, dtype=torch.float64)
        object.__setattr__(self, "output_tokens_per_second", self.output_tokens / max(float(times.sum()), 1e-9))
        object.__setattr__(self, "latency_p50", float(times.quantile(0.5)))
        object.__setattr__(self, "latency_p90", float(times.quantile(0.9)))


def time_calls(
    call: Callable[[int], Output],
    *,
    eos_id: int,
    pad_id: int,
    repeats: int,
    warmup: int = 1,
    device: torch.device | str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time `call(number)` `repeats` times after `warmup` calls that do not count."""
    device = torch.device(device)
    for number in range(warmup):
        call(number)
    seconds: list[float] = []
    texts: list[list[int]] = []
    for number in range(warmup, warmup + repeats):
        synchronize(device)
        start = clock()
        output = call(number)
        synchronize(device)
        seconds.append(clock() - start)
        texts += [real_tokens(sequence, eos_id, pad_id) for sequence in output.sequences]
    return Timing(seconds, sum(map(len, texts)), sum(map(entropy, texts)) / max(1, len(texts)))


class Speed:
    """Output tokens per second of unconditional text for each step count and batch size; autoregressive beside them.

    Args:
        num_inference_steps: step counts a block.
        batch_sizes: rows generated together.
        length: tokens a row; None: the model's window.
        repeats, warmup: timed calls and calls before them, for each setting.
        temperature: of the sampler.
        solver: of the sampler; None: full renoising.
    """

    def __init__(
        self,
        num_inference_steps: Sequence[int] = (2, 4, 8, 16),
        batch_sizes: Sequence[int] = (1, 16),
        length: int | None = None,
        repeats: int = 3,
        warmup: int = 1,
        temperature: float = 0.7,
        solver: Solver | None = None,
    ):
        self.num_inference_steps = list(num_inference_steps)
        self.batch_sizes = list(batch_sizes)
        self.length = length
        self.repeats = repeats
        self.warmup = warmup
        self.temperature = temperature
        self.solver = solver or DDIM(eta=1.0)

    def __call__(self, subject: Subject) -> Section:
        length = self.length or subject.model.max_length
        settings = product(self.batch_sizes, self.num_inference_steps)
        records = [self._time(subject, rows, length, steps) for rows, steps in settings]
        if subject.autoregressive is not None:
            records += [self._time(subject, rows, length, None) for rows in self.batch_sizes]
        table = Table(
            f"Speed: {length} tokens a row on {records[0]['device']} ({records[0]['precision']}, "
            f"{torch.get_num_threads()} threads)",
            ["steps", "batch", "tokens/s", "p50 s", "p90 s", "entropy"],
            [
                [
                    str(r["num_inference_steps"] or AUTOREGRESSIVE),
                    str(r["batch"]),
                    f"{r['output_tokens_per_second']:,.0f}",
                    f"{r['latency_p50']:.3f}",
                    f"{r['latency_p90']:.3f}",
                    f"{r['entropy']:.2f}",
                ]
                for r in records
            ],
            [f"{DEFINITION}; {self.repeats} timed calls a line. What the text is worth: see text quality."],
        )
        scalars = {
            f"speed/{_name(r)}_batch_{r['batch']}/tokens_per_second": r["output_tokens_per_second"] for r in records
        }
        return Section("Speed", {"definition": DEFINITION, "settings": records}, [table], scalars=scalars)

    def _time(self, subject: Subject, rows: int, length: int, steps: int | None) -> dict[str, Any]:
        """Time one setting; `steps` None is the autoregressive decoder."""
        model, tokenizer = subject.model, subject.tokenizer
        arguments: dict[str, Any] = {"num_samples": rows, "max_new_tokens": length, "temperature": self.temperature}
        decoder = subject.generate
        if steps is not None:
            arguments |= {"num_inference_steps": steps, "solver": self.solver}
        else:
            assert subject.autoregressive is not None
            decoder = subject.autoregressive

        def call(number: int) -> Output:
            return decoder(model, [""], seed=subject.seed + number * rows, **arguments)

        timing = time_calls(
            call,
            eos_id=tokenizer.eos_id,
            pad_id=tokenizer.pad_id,
            repeats=self.repeats,
            warmup=self.warmup,
            device=model.device,
        )
        setting = {
            "num_inference_steps": steps,
            "solver": None if steps is None else describe_solver(self.solver),
            "batch": rows,
            "length": length,
            "stagger": None if steps is None else fitting_stagger(model.stagger, steps),
            "block_length": 1 if steps is None else model.block_length,
            "temperature": self.temperature,
            "warmup": self.warmup,
            "threads": torch.get_num_threads(),
        }
        return {**subject.provenance(), **setting, **asdict(timing)}


def _name(record: dict[str, Any]) -> str:
    steps = record["num_inference_steps"]
    return AUTOREGRESSIVE if steps is None else f"steps_{steps}"
