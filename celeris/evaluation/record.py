"""What a metric is given and what it hands back. The report renders sections without knowing which metric made them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from celeris.evaluation.store import Store
from celeris.sampling.device import synchronize as synchronize
from celeris.tokenizer import TextTokenizer


class Output(Protocol):
    """What a sampler returns for each row: new token ids without the prompt, and the passes through the model it took.

    `nfe`: denoiser calls; `context_passes`: calls that read a prompt or wrote context.
    """

    @property
    def sequences(self) -> Sequence[Sequence[int]]: ...

    @property
    def nfe(self) -> Sequence[int]: ...

    @property
    def context_passes(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class Decoder:
    """One way to write text with a model, every choice made.

    Attributes:
        key: names the choice in every report, so that quality and speed of the same choice can be joined:
            "celeris/steps_4/eta_1/t0.7".
        label: the same in words, for tables.
        setting: plain JSON values that repeat it, given the weights, the length and the seeds.
        generate: (model, prompts, *, num_samples, max_new_tokens, seed) → `Output`.
    """

    key: str
    label: str
    setting: dict[str, Any]
    generate: Callable[..., Output]


@dataclass(frozen=True)
class Subject:
    """A model and the data it is measured on.

    Attributes:
        model: a `celeris.language_model.LanguageModel` in evaluation mode.
        data: a `celeris.data.text_data.TextData`, or whatever has its `train`, `val`, `train_texts`, `val_texts`.
        tokenizer: the model's.
        seed: every random stream of the evaluation derives from it.
        progress: say on the terminal what is being measured.
        store: what was measured before (`celeris.evaluation.store.Store`).
    """

    model: Any
    data: Any
    tokenizer: TextTokenizer
    seed: int = 0
    progress: bool = False
    store: Store = field(default_factory=Store)

    def provenance(self) -> dict[str, Any]:
        """What a figure must name to be repeated: the weights, their step, precision, device and seed."""
        parameter = next(self.model.parameters())
        return {
            "system": self.model.system,
            "weight_hash": self.model.weight_hash,
            "step": self.model.info.get("step"),
            "trained_with_seed": self.model.info.get("seed"),
            "parameters": self.model.num_parameters,
            "precision": str(parameter.dtype).removeprefix("torch."),
            "device": device_name(parameter.device),
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Table:
    """Cells already formatted; `notes` are printed below it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    """One text to show, and the setting it was made with."""

    setting: str
    text: str


@dataclass(frozen=True)
class Section:
    """What one metric found.

    Attributes:
        title: heading in the report.
        record: every figure with its provenance, plain JSON values; None where a figure is undefined.
        tables: the figures worth reading.
        headline: one or two sentences that the last screen of a run prints.
        flags: warnings, each beginning with its name in capitals.
        unavailable: figures that could not be computed, each with the reason.
        samples: texts to show.
        plots: file stem -> function that draws on the matplotlib Axes it is given.
        scalars: flat name -> number, for loggers.
    """

    title: str
    record: dict[str, Any]
    tables: list[Table]
    headline: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    plots: dict[str, Callable[[Any], None]] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)


class Metric(Protocol):
    """One kind of measurement; its parameters are constructor arguments."""

    def __call__(self, subject: Subject) -> Section: ...


def device_name(device: torch.device) -> str:
    """The GPU's name, or the kind of device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def describe_solver(solver: Any) -> str:
    """Class and parameters, for a report: "DDIM(eta=0.5)"."""
    parameters = ", ".join(f"{name}={value:g}" for name, value in sorted(vars(solver).items()))
    return f"{type(solver).__name__}({parameters})"
