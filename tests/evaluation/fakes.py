"""Stand-ins for model, data, sampler and scorer, so that an evaluation's arithmetic can be checked by hand."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from celeris.errors import CelerisError
from celeris.evaluation.record import Subject
from celeris.evaluation.scorer import ScoredTexts
from celeris.evaluation.units import NegativeLogLikelihood, text_size
from celeris.tokenizer import TextTokenizer, character_backend

PROSE = (
    "The relations of the United States with all foreign powers continue to be friendly.\n\n"
    "Our position after nearly a century of successful constitutional government is honorable, and the finances of "
    "the country were never in a better condition than they are at present.\n\n"
    "The report of the Secretary of the Navy shows a steady advance in the construction of new vessels; the people "
    "of every section have reason to be thankful for abundant harvests and for the blessings of peace.\n"
)


def character_tokenizer(text: str = PROSE) -> TextTokenizer:
    return TextTokenizer(character_backend(sorted(set(text))), 0, 1, 2)


@dataclass
class FakeOutput:
    sequences: Sequence[Sequence[int]]
    nfe: Sequence[int] = ()


class FakeModel(nn.Module):
    """Has what a report reads of a model."""

    max_length = 64
    block_length = 16
    stagger = 0.0
    has_next_token_head = False
    weight_hash = "0123456789ab"
    num_parameters = 7

    def __init__(self, tokenizer: TextTokenizer | None):
        super().__init__()
        self.tokenizer = tokenizer
        self.weight = nn.Parameter(torch.zeros(7))
        self.info: dict[str, Any] = {"step": 123}

    @property
    def device(self) -> torch.device:
        return self.weight.device


@dataclass
class FakeData:
    """Texts in memory; `train` and `val` are rows of `length` tokens of them."""

    tokenizer: TextTokenizer
    train_documents: list[str] = field(default_factory=lambda: [PROSE])
    val_documents: list[str] = field(default_factory=lambda: [PROSE])
    length: int = 16
    changed: list[str] = field(default_factory=list)

    def train_texts(self) -> Iterator[str]:
        return iter(self.train_documents)

    def val_texts(self) -> Iterator[str]:
        return iter(self.val_documents)

    @property
    def train(self) -> torch.Tensor:
        return self._rows(self.train_documents)

    @property
    def val(self) -> torch.Tensor:
        return self._rows(self.val_documents)

    def describe(self) -> dict[str, Any]:
        return {"source": "prose", "fingerprint": "f00d"}

    def differences(self, recorded: dict[str, Any]) -> list[str]:
        return self.changed

    def _rows(self, documents: list[str]) -> torch.Tensor:
        ids = [token for text in documents for token in [*self.tokenizer.encode(text), self.tokenizer.eos_id]]
        whole = len(ids) // self.length * self.length
        return torch.tensor(ids[:whole]).view(-1, self.length)


class FakeScorer:
    """One nat a character, and characters for tokens."""

    name = "fake scorer"
    definition = "one nat a character"

    def __init__(self):
        self.read: list[str] = []

    def score(self, texts: Sequence[str]) -> ScoredTexts:
        self.read += texts
        records: list[NegativeLogLikelihood | None] = []
        for text in texts:
            size = text_size([text])
            record = NegativeLogLikelihood(float(len(text)), len(text), size.characters, size.bytes)
            records.append(record if text.strip() else None)
        return ScoredTexts(records, [[ord(c) for c in text] if text.strip() else [] for text in texts])


class MissingScorer:
    """Cannot be loaded."""

    name = "missing scorer"
    definition = "none"

    def score(self, texts: Sequence[str]) -> ScoredTexts:
        raise CelerisError("The scorer's weights are missing: install the package `some-weights`.")


class FakeSampler:
    """Returns the texts of `write(row number, steps)`, ends them with EOS and PAD, and remembers its calls."""

    def __init__(self, tokenizer: TextTokenizer, write: Callable[[int, int], str]):
        self.tokenizer = tokenizer
        self.write = write
        self.calls: list[dict[str, Any]] = []

    def __call__(self, model: Any, prompts: list[str], **arguments: Any) -> FakeOutput:
        self.calls.append({"prompts": prompts, **arguments})
        length = arguments["max_new_tokens"]
        rows = []
        for row in range(arguments["num_samples"]):
            text = self.write(arguments["seed"] + row, arguments.get("num_inference_steps", 0))
            ids = self.tokenizer.encode(text)[:length]
            rows.append((ids + [self.tokenizer.eos_id] + [self.tokenizer.pad_id] * length)[:length])
        solver, steps = arguments.get("solver"), arguments.get("num_inference_steps", 0)
        calls = len(solver.path([float(t) for t in range(steps, -1, -1)])) - 1 if solver else steps
        blocks = -(-length // model.block_length)
        return FakeOutput(rows, [calls * blocks] * len(rows))


def subject(write: Callable[[int, int], str] = lambda row, steps: PROSE, **data: Any) -> Subject:
    tokenizer = character_tokenizer()
    sampler = FakeSampler(tokenizer, write)
    return Subject(FakeModel(tokenizer), FakeData(tokenizer, **data), tokenizer, sampler, seed=5)
