"""How fast text is written: every decoder of one or several models, timed in one run, taking turns."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from celeris.errors import CelerisError
from celeris.evaluation import flops, memory
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.flops import count_flops, matmul_peak
from celeris.evaluation.machine import describe_machine, load_average, package_version
from celeris.evaluation.memory import Memory, peak_memory
from celeris.evaluation.record import Decoder, Output, Section, Subject
from celeris.evaluation.speed_tables import busy, scalars, tables, tokens_by_batch
from celeris.evaluation.timing import DEFINITIONS, Call, relative, rounds, summarize, time_call
from celeris.evaluation.windows import text_windows
from celeris.sampling import Solver
from celeris.sampling.device import synchronize

DEFINITION = {**DEFINITIONS, "flops": flops.DEFINITION, "peak_memory": memory.DEFINITION}
PEAK_REPEATS = 3  # of the large matrix product, in each round


@dataclass(frozen=True)
class Cell:
    """One setting: who writes, how, and how much."""

    subject: Subject
    decoder: Decoder
    batch: int
    prompt_length: int
    length: int
    prompts: list[str]
    """As many as `batch` or more, all different; none when `prompt_length` is 0."""

    def call(self, number: int) -> Output:
        """Call number `number`: no row repeats the seed of another call's, and prompts move on."""
        shared = {"max_new_tokens": self.length, "seed": self.subject.seed + number * self.batch}
        if not self.prompts:
            return self.decoder.generate(self.subject.model, [""], num_samples=self.batch, **shared)
        chosen = [self.prompts[(number * self.batch + row) % len(self.prompts)] for row in range(self.batch)]
        return self.decoder.generate(self.subject.model, chosen, num_samples=1, **shared)

    @property
    def place(self) -> tuple[int, int, int]:
        return self.batch, self.prompt_length, self.length


class Speed:
    """Output tokens per second, latency, memory and arithmetic of each decoder, batch size and length.

    Args:
        num_inference_steps: step counts a block of diffusion.
        masked_steps: step counts a canvas of masked diffusion.
        temperatures, masked_temperatures, autoregressive_temperatures, solvers: as in
            `celeris.evaluation.decoders.Choices`.
        batch_sizes: rows written together.
        prompt_lengths: tokens of held-out text in front; 0: from nothing.
        length: tokens a row, or several such; None: what the prompt leaves of the (smallest) window.
        repeats: timed calls of each setting, one a round.
        warmup: calls before them, at least 1; the arithmetic of the first is counted. One more measures memory.
    """

    def __init__(
        self,
        num_inference_steps: Sequence[int] = (2, 4, 8, 16),
        masked_steps: Sequence[int] = (32, 64, 128, 256),
        temperatures: Sequence[float] = (0.7,),
        masked_temperatures: Sequence[float] | None = None,
        autoregressive_temperatures: Sequence[float] = (1.0,),
        solvers: Mapping[str, Solver] | None = None,
        batch_sizes: Sequence[int] = (1, 16),
        prompt_lengths: Sequence[int] = (0,),
        length: int | Sequence[int] | None = None,
        repeats: int = 3,
        warmup: int = 1,
    ):
        lengths = [length] if length is None or isinstance(length, int) else list(length)
        for name, values, least in (
            ("batch_sizes", batch_sizes, 1),
            ("prompt_lengths", prompt_lengths, 0),
            ("length", lengths, 1),
            ("repeats", [repeats], 1),
            ("warmup", [warmup], 1),
        ):
            if not values or any(value is not None and value < least for value in values):
                raise CelerisError(f"{name}={list(values)}; speed needs at least one value and none below {least}.")
        chosen: dict[str, Any] = {} if solvers is None else {"solvers": dict(solvers)}
        chosen["masked_temperatures"] = masked_temperatures
        self.choices = Choices(num_inference_steps, masked_steps, temperatures, autoregressive_temperatures, **chosen)
        self.batch_sizes, self.prompt_lengths, self.lengths = list(batch_sizes), list(prompt_lengths), lengths
        self.repeats, self.warmup = repeats, warmup
        self.clock: Callable[[], float] = time.perf_counter

    def __call__(self, subject: Subject) -> Section:
        return self.together([subject])

    def together(self, subjects: Sequence[Subject]) -> Section:
        """Measure all decoders of all `subjects` in one run: a round calls every setting once, in shuffled order.

        Raises:
            CelerisError: prompt and output do not fit a window, or the held-out text has too few prompts.
        """
        environment, provenance = describe_machine(), [subject.provenance() for subject in subjects]
        environment["transformers"] = package_version("transformers")
        cells = self._cells(subjects)
        known = {id(subject): facts for subject, facts in zip(subjects, provenance, strict=True)}
        progress = any(subject.progress for subject in subjects)
        work = []
        for cell in cells:
            if progress:
                print(f"  speed: warm-up, {cell.decoder.label}, batch {cell.batch}", flush=True)
            work.append(self._work(cell))
        calls: list[list[Call]] = [[] for _ in cells]
        kinds = {(s.model.device, next(s.model.parameters()).dtype) for s in subjects}
        kinds |= {(device, torch.float32) for device, _ in kinds}
        peaks: dict[tuple[torch.device, torch.dtype], float] = dict.fromkeys(kinds, 0.0)
        for number, order in enumerate(rounds(len(cells), self.repeats, subjects[0].seed)):
            if progress:
                print(f"  speed: round {number + 1} of {self.repeats}", flush=True)
            for kind in kinds:
                peaks[kind] = max(peaks[kind], matmul_peak(*kind, repeats=PEAK_REPEATS))
            for place in order:
                calls[place].append(self._timed(cells[place], self.warmup + 1 + number))
        environment["load_average_after"] = load_average()
        records = []
        for cell, own, (count, counted, held) in zip(cells, calls, work, strict=True):
            base = baseline(cells, cell)
            model = cell.subject.model
            figures = summarize(own)
            per_token = count / counted if counted else None
            peak = peaks[model.device, next(model.parameters()).dtype]
            share = None if per_token is None else per_token * figures["output_tokens_per_second"] / peak
            records.append(
                {
                    "key": cell.decoder.key,
                    "label": cell.decoder.label,
                    **known[id(cell.subject)],
                    **cell.decoder.setting,
                    "batch": cell.batch,
                    "prompt_length": cell.prompt_length,
                    "length": cell.length,
                    "repeats": self.repeats,
                    "warmup": self.warmup + 1,
                    "threads": environment["threads"],
                    **figures,
                    "relative_to": None if base is None else cells[base].decoder.key,
                    **relative(own, calls[base] if base is not None else None),
                    "flops_per_token": per_token,
                    "share_of_peak": share,
                    "peak_memory_bytes": held.extra,
                    "peak_memory_total_bytes": held.peak,
                }
            )
        record = {
            "definition": DEFINITION,
            "environment": environment,
            "peak": {f"{dtype} on {device}".removeprefix("torch."): value for (device, dtype), value in peaks.items()},
            "settings": records,
        }
        reasons = list(dict.fromkeys(held.reason for _, _, held in work if held.reason))
        return Section(
            "Speed",
            record,
            tables(record),
            flags=busy(environment),
            unavailable=[f"peak memory: {reason}" for reason in reasons],
            plots={"speed": tokens_by_batch(records)},
            scalars=scalars(records),
        )

    def _cells(self, subjects: Sequence[Subject]) -> list[Cell]:
        window = min(subject.model.max_length for subject in subjects)
        places = []
        for prompt_length, asked in product(self.prompt_lengths, self.lengths):
            length = max(window - prompt_length, 1) if asked is None else asked
            if prompt_length + length > window:
                raise CelerisError(
                    f"A prompt of {prompt_length} tokens and {length} tokens of output exceed the window of {window}; "
                    "lower prompt_lengths or length of speed."
                )
            places.append((prompt_length, length))
        rows = max(self.batch_sizes)
        cells = []
        for subject in subjects:
            found = decoders(subject.model, self.choices)
            prompts = {n: cut_prompts(subject, n, rows, self.repeats) for n in self.prompt_lengths}
            for batch, (prompt_length, length) in product(self.batch_sizes, places):
                cells += [Cell(subject, d, batch, prompt_length, length, prompts[prompt_length]) for d in found]
        # Models stand beside each other: what is compared has one batch and one pair of lengths.
        return sorted(cells, key=lambda cell: (self.batch_sizes.index(cell.batch), places.index(cell.place[1:])))

    def _work(self, cell: Cell) -> tuple[int, int, Memory]:
        """Warm up; the FLOPs of one call with the tokens it wrote, and the memory of another."""
        count, first = count_flops(lambda: self._timed(cell, 0))
        for number in range(1, self.warmup):
            cell.call(number)
        return count, first.tokens, peak_memory(lambda: cell.call(self.warmup), cell.subject.model.device)

    def _timed(self, cell: Cell, number: int) -> Call:
        tokenizer, device = cell.subject.tokenizer, cell.subject.model.device
        return time_call(
            lambda: cell.call(number),
            eos_id=tokenizer.eos_id,
            pad_id=tokenizer.pad_id,
            synchronize=lambda: synchronize(device),
            clock=self.clock,
        )


def baseline(cells: Sequence[Cell], cell: Cell) -> int | None:
    """Whom `cell` is compared with: the first llama decoder at its batch and lengths, else the first next-token one."""
    same = [number for number, other in enumerate(cells) if other.place == cell.place]
    llama = [number for number in same if cells[number].subject.model.system == "llama"]
    by_token = [number for number in same if cells[number].decoder.setting.get("decoder") == "autoregressive"]
    return next(iter([*llama, *by_token]), None)


def cut_prompts(subject: Subject, length: int, rows: int, repeats: int) -> list[str]:
    """Different pieces of `length` tokens of the held-out text, at least `rows`; none when `length` is 0.

    A piece is kept if it has as many tokens when its text is encoded again, which is what a sampler does.

    Raises:
        CelerisError: the text has too few.
    """
    if length == 0:
        return []
    tokenizer = subject.tokenizer
    found = text_windows(subject.data.val_texts(), tokenizer, 4 * rows * (repeats + 2), length)
    texts = distinct(tokenizer.decode(ids) for ids in found)
    kept = [text for text in texts if len(tokenizer.encode(text)) == length]
    if len(kept) < rows:
        raise CelerisError(
            f"The held-out text has {len(kept)} different prompts of {length} tokens and a batch needs {rows}; lower "
            "prompt_lengths or batch_sizes of speed."
        )
    return kept


def distinct(texts: Iterable[str]) -> list[str]:
    """Each once, in order."""
    return list(dict.fromkeys(texts))
