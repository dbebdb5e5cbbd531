"""Texts that a decoder wrote, made once and kept."""

import hashlib
import inspect
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from celeris.evaluation.record import Decoder, Subject, device_name, synchronize
from celeris.evaluation.store import PACKAGE
from celeris.evaluation.timing import real_tokens

ROOMS = ("baselines", "batch.py", "denoiser", "embedding", "evaluation/samples.py", "language_model.py", "model.py",
         "noise", "rounding", "sampling", "streams.py", "tokenizer.py")  # fmt: skip
"""Whose code decides what a model writes."""


@dataclass(frozen=True)
class Texts:
    """Samples of one setting, or real text.

    Attributes:
        sequences: token ids without EOS and PAD.
        texts: the same as text.
        seconds: what making them took; None for real text.
        calls: denoiser calls over all rows; 0 where no denoiser made them.
        context_passes: passes over all rows that read a prompt or wrote context.
    """

    sequences: list[list[int]]
    texts: list[str]
    seconds: float | None = None
    calls: int = 0
    context_passes: int = 0

    @property
    def tokens(self) -> int:
        return sum(map(len, self.sequences))

    @property
    def forwards(self) -> int:
        """Passes of a row through the model, summed over rows."""
        return self.calls + self.context_passes

    @property
    def hash(self) -> str:
        return content_hash([self.sequences, self.texts])


def write(
    subject: Subject, decoder: Decoder, length: int, count: int, batch_size: int, prompts: Sequence[str] | None = None
) -> Texts:
    """`count` texts of at most `length` tokens, row k with seed `subject.seed + k`.

    From an empty prompt, or row k from prompt k of `prompts`, of which there are `count`; the prompt is not part of it.
    Kept in `subject.store`, with the seconds they took when they were made.
    """
    model = subject.model
    parameter = next(model.parameters())
    key = {
        "weights": model.weight_hash,
        "model": content_hash(model.spec),
        "tokenizer": subject.tokenizer.fingerprint,
        "decoder": decoder.key,
        "setting": decoder.setting,
        "length": length,
        "count": count,
        "seed": subject.seed,
        "prompts": None if prompts is None else content_hash(list(prompts)),
        "batch_size": batch_size,  # the same rows up to rounding, but not the same seconds
        "precision": str(parameter.dtype),
        "device": device_name(parameter.device),
        "torch": torch.__version__,
        "foreign_code": _foreign_code(model, decoder),
    }
    make = partial(_write, subject, decoder, length, [""] * count if prompts is None else prompts, batch_size)
    kept = subject.store.get("samples", key, lambda: asdict(make()), ROOMS, f"samples of {decoder.label}")
    return Texts(**kept)


def _write(subject: Subject, decoder: Decoder, length: int, prompts: Sequence[str], batch_size: int) -> Texts:
    model, tokenizer, count = subject.model, subject.tokenizer, len(prompts)

    def batch(first: int, rows: int, tokens: int) -> Any:
        chosen = list(prompts[first : first + rows])
        same = len(set(chosen)) == 1
        return decoder.generate(
            model,
            chosen[:1] if same else chosen,
            num_samples=rows if same else 1,
            max_new_tokens=tokens,
            seed=subject.seed + first,
        )

    batch(0, 1, min(length, getattr(model, "block_length", 16)))  # warms up before the clock runs
    sequences: list[list[int]] = []
    calls = context_passes = 0
    synchronize(model.device)
    start = time.perf_counter()
    for first in range(0, count, batch_size):
        output = batch(first, min(batch_size, count - first), length)
        sequences += [real_tokens(ids, tokenizer.eos_id, tokenizer.pad_id) for ids in output.sequences]
        calls += sum(output.nfe)
        context_passes += sum(output.context_passes)
    synchronize(model.device)
    seconds = time.perf_counter() - start
    return Texts(sequences, [tokenizer.decode(ids) for ids in sequences], seconds, calls, context_passes)


def content_hash(value: Any) -> str:
    """16 hex digits over plain JSON values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _foreign_code(model: Any, decoder: Decoder) -> str:
    """Hash of the code outside of the package that takes part: classes of a plugin in the model or its decoder."""
    parts = [*model.modules(), *getattr(decoder.generate, "keywords", {}).values()]
    files = {file for part in parts if (file := _source(type(part))) is not None}
    return content_hash([Path(file).read_text(encoding="utf-8") for file in sorted(files)])


def _source(kind: type) -> str | None:
    """The file of a class that neither the package nor an installed one holds."""
    try:
        file = inspect.getfile(kind)
    except (TypeError, OSError):
        return None
    path = Path(file)
    installed = "site-packages" in path.parts or path.is_relative_to(PACKAGE) or not path.is_file()
    return None if installed else file
