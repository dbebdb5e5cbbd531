"""Small models whose real training step a CPU takes in a fraction of a second, for checks of the formulae."""

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from celeris.batch import Batch
from celeris.data.layouts import AllBlocks
from celeris.language_model import LanguageModel
from celeris.noise.levels import LevelMixture, PerToken, Together
from celeris.objectives import CrossEntropy
from celeris.scaling.trace import Trace, fake_model, plain_rows, trace_step
from celeris.training.ema import EMA
from celeris.training.optim import muon_adamw
from celeris.training.recompute import recompute


class Size(NamedTuple):
    """Of a model and a micro-batch."""

    width: int
    depth: int
    vocab_size: int
    rows: int
    length: int = 256

    def __str__(self) -> str:
        return f"{self.depth} x {self.width}, V = {self.vocab_size:,}, {self.rows} x {self.length} tokens"


SIZES = (Size(128, 4, 96, 4), Size(256, 4, 512, 2), Size(256, 4, 4096, 2))


def spec_of(size: Size) -> dict[str, Any]:
    """Record of a DiffusionLM as the configurations make it."""
    room = "celeris.denoiser"
    return {
        "_target_": "celeris.model.DiffusionLM",
        "vocab_size": size.vocab_size,
        "max_length": size.length,
        "block_length": 16,
        "embedding": {"_target_": "celeris.embedding.TokenEmbedding", "vocab_size": size.vocab_size, "dim": 32},
        "schedule": {"_target_": "celeris.noise.LossCDFSchedule", "gamma_min": -6.0, "gamma_max": 9.0},
        "denoiser": {"_target_": f"{room}.Transformer", "dim": 32, "width": size.width, "depth": size.depth,
                     "heads": size.width // 64, "attention": "sdpa"},
    }  # fmt: skip


def batch_of(size: Size, first: int = 0) -> Batch:
    """Rows number `first` and following."""
    ids, index = plain_rows(size.rows, size.length, size.vocab_size, first)
    return AllBlocks(16)(ids, index, seed=0, pad_id=0)


def objective_of() -> CrossEntropy:
    """Every row gets the self-conditioning pass, so that all steps are equal."""
    return CrossEntropy(LevelMixture([Together(), PerToken()], [1.0, 1.0]), self_conditioning=1.0)


def optimizer_of(model: LanguageModel) -> Optimizer:
    return muon_adamw(model, lr=1e-3)


def trace_of(size: Size, again: bool = False, mixed: bool = False, gathered: torch.dtype = torch.float32) -> Trace:
    """The counted step of a model of this size; `again`: layers are computed again in backward; `mixed`: in bf16;
    `gathered`: as in `trace_step`."""
    ema, model = EMA(0.9), fake_model(spec_of(size))
    if again:
        recompute(model.layers)
    return trace_step(
        model,
        objective_of(),
        optimizer_of,
        ema.update,
        lambda: (ema.average or {}).values(),
        batch_of(size),
        mixed,
        gathered,
    )


class Step(nn.Module):
    """The loss as a forward pass, for DistributedDataParallel."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model, self.objective = model, objective_of()

    def forward(self, batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = self.objective(self.model, batch, 0).loss
        return loss
