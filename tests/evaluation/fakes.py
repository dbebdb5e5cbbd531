"""Stand-ins for model, data, sampler and scorer, so that an evaluation's arithmetic can be checked by hand."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from celeris.errors import CelerisError
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.record import Decoder, Subject, describe_solver
from celeris.evaluation.scorer import ScoredTexts
from celeris.evaluation.slug import slug
from celeris.evaluation.store import Store
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
    context_passes: Sequence[int] = ()


class FakeModel(nn.Module):
    """Has what a report reads of a model. Its text comes from `sampler`, and it has the decoders of a diffusion model.

    Args:
        tokenizer: the model's.
        sampler: (model, prompts, **arguments) → `FakeOutput`; None: it cannot write.
        next_token: it can also write token by token.
    """

    system = "fake"
    max_length = 64
    block_length = 16
    stagger = 0.0
    weight_hash = "0123456789ab"
    num_parameters = 7

    def __init__(
        self,
        tokenizer: TextTokenizer | None,
        sampler: Callable[..., FakeOutput] | None = None,
        next_token: bool = False,
    ):
        super().__init__()
        self.tokenizer = tokenizer
        self.sampler = sampler
        self.has_next_token_head = next_token
        self.weight = nn.Parameter(torch.zeros(7))
        self.info: dict[str, Any] = {"step": 123}
        self.spec: dict[str, Any] = {"_target_": "fake"}

    @property
    def device(self) -> torch.device:
        return self.weight.device


@decoders.register
def _(model: FakeModel, choices: Choices) -> list[Decoder]:
    assert model.sampler is not None
    found = []
    for temperature in choices.temperatures:
        for name, solver in choices.solvers.items():
            for steps in choices.num_inference_steps:
                words = [f"{steps} steps", *([name] if len(choices.solvers) > 1 else []), f"T {temperature:g}"]
                setting = {
                    "decoder": "diffusion",
                    "num_inference_steps": steps,
                    "solver_name": name,
                    "solver": describe_solver(solver),
                    "temperature": temperature,
                    "stagger": model.stagger,
                    "block_length": model.block_length,
                }
                write = partial(model.sampler, num_inference_steps=steps, solver=solver, temperature=temperature)
                key = f"fake/steps_{steps}/{slug(name)}/t{temperature:g}"
                found.append(Decoder(key, ", ".join(["fake", *words]), setting, write))
    if model.has_next_token_head:
        for temperature in choices.autoregressive_temperatures:
            setting = {"decoder": "autoregressive", "num_inference_steps": None, "temperature": temperature}
            write = partial(model.sampler, temperature=temperature)
            key = f"fake/next_token/t{temperature:g}"
            found.append(Decoder(key, f"fake, next token, T {temperature:g}", setting, write))
    return found


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
        self.scoring: dict[str, Any] = {"scorer": self.name, "window": 8}

    def tokenize(self, text: str) -> list[int]:
        return [ord(c) for c in text]

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
    scoring: dict[str, Any] = {"scorer": name}

    def tokenize(self, text: str) -> list[int]:
        raise CelerisError("The scorer's weights are missing: install the package `some-weights`.")

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
        passes = blocks if steps else length  # each block is read once when it is done; token by token, each token
        return FakeOutput(rows, [calls * blocks] * len(rows), [passes] * len(rows))


def subject(
    write: Callable[[int, int], str] = lambda row, steps: PROSE,
    *,
    next_token: bool = False,
    store: Store | None = None,
    **data: Any,
) -> Subject:
    tokenizer = character_tokenizer()
    model = FakeModel(tokenizer, FakeSampler(tokenizer, write), next_token)
    return Subject(model, FakeData(tokenizer, **data), tokenizer, seed=5, store=store or Store())
