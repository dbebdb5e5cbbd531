"""A tiny model, its text and a trainer around them: everything a training test needs, in a second."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from torch.utils.data import DataLoader

from celeris.data.layouts import AllBlocks
from celeris.data.loader import MicroBatches, batches
from celeris.data.rows import EpochOrder
from celeris.denoiser import Transformer
from celeris.embedding import TokenEmbedding
from celeris.model import DiffusionLM
from celeris.noise import GumbelSchedule, LossCDFSchedule, Schedule
from celeris.noise.levels import LevelMixture, PerToken, Together
from celeris.objectives import CrossEntropy
from celeris.training.callbacks import Checkpoints, StepMetrics
from celeris.training.data import TextDataModule
from celeris.training.ema import EMA
from celeris.training.guard import GradientGuard
from celeris.training.loggers.metrics_file import MetricsFile
from celeris.training.module import TrainingModule
from celeris.training.optim import WarmupStableDecay, muon_adamw
from celeris.training.trainer import build_trainer
from celeris.training.validation import LossesByLevel

VOCAB, DIM, LENGTH, BLOCK, ROWS = 12, 8, 16, 8, 23


class MemoryRows:
    """Rows of random ids, in memory."""

    def __init__(self, count: int, seed: int) -> None:
        self.ids = torch.randint(2, VOCAB, (count, LENGTH), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: np.ndarray) -> torch.Tensor:
        return self.ids[torch.as_tensor(rows)]


class MemoryText:
    """The part of TextData that training asks for; `served` lists the (rank, start, stop) of each train loader."""

    def __init__(self, rows: int = ROWS, val_rows: int = 5) -> None:
        self.train, self.val = MemoryRows(rows, 0), MemoryRows(val_rows, 1)
        self.layout = AllBlocks(BLOCK)
        self.served: list[tuple[int, int, int]] = []

    def train_loader(
        self,
        micro_batch_size: int,
        seed: int,
        start: int,
        stop: int,
        rank: int,
        world_size: int,
        num_workers: int,
        pin_memory: bool,
    ) -> DataLoader:
        self.served.append((rank, start, stop))
        order: Any = EpochOrder(seed, len(self.train))
        rows: Any = self.train
        return batches(MicroBatches(rows, self.layout, order, seed, 0, micro_batch_size, start, stop, rank, world_size))

    def val_loader(self, batch_size: int, rank: int, world_size: int) -> DataLoader:
        rows: Any = self.val
        return batches(MicroBatches(rows, self.layout, None, 0, 0, batch_size, 0, len(rows), rank, world_size))


def tiny_model(schedule: Schedule | None = None, dropout: float = 0.1) -> DiffusionLM:
    torch.manual_seed(0)
    return DiffusionLM(
        VOCAB,
        TokenEmbedding(VOCAB, DIM),
        schedule or LossCDFSchedule(-4.0, 6.0, bins=8),
        Transformer(DIM, width=16, depth=2, heads=2, cond_dim=8, mixing=(2, 2), dropout=dropout),
        max_length=LENGTH,
        block_length=BLOCK,
    )


def tiny_module(model: DiffusionLM | None = None, *, global_batch_size: int = 8, **changes: Any) -> TrainingModule:
    settings: dict[str, Any] = {
        "objective": CrossEntropy(LevelMixture([Together(), PerToken()], [1, 1])),
        "optimizer": lambda model: muon_adamw(model, lr=3e-3),
        "lr_schedule": WarmupStableDecay(warmup_steps=3, decay_fraction=0.3),
        "ema": EMA(0.9),
        "guard": GradientGuard(max_norm=1.0),
        "seed": 7,
        "probe": LossesByLevel((-1.0, 2.0), 7),
        **changes,
    }
    return TrainingModule(model or tiny_model(), global_batch_size=global_batch_size, **settings)


def plain_descent(model: DiffusionLM) -> torch.optim.Optimizer:
    """Linear in the gradient: rounding stays rounding, which Adam and Muon would blow up where gradients vanish."""
    return torch.optim.SGD([{"params": model.parameters(), "lr": 0.1, "base_lr": 0.1}])


def fit(
    folder: Path,
    module: TrainingModule | None = None,
    *,
    max_steps: int = 20,
    ckpt: Path | None = None,
    callbacks: Sequence[L.Callback] = (),
    data: MemoryText | None = None,
    global_batch_size: int = 8,
    micro_batch_size: int = 2,
    every_n_steps: int = 10,
    around: Callable[[L.Trainer], None] | None = None,
    **trainer_settings: Any,
) -> TrainingModule:
    """Train and return the module; checkpoints in folder/checkpoints, numbers in folder/metrics.jsonl."""
    module = module or tiny_module(global_batch_size=global_batch_size)
    trainer = build_trainer(
        max_steps=max_steps,
        global_batch_size=global_batch_size,
        micro_batch_size=micro_batch_size,
        root_dir=folder,
        callbacks=[*callbacks, StepMetrics(4), Checkpoints(folder / "checkpoints", every_n_steps, keep=100)],
        loggers=[MetricsFile(folder)],
        accelerator="cpu",
        **trainer_settings,
    )
    loaders = TextDataModule(
        data or MemoryText(),
        seed=module.seed,
        global_batch_size=global_batch_size,
        micro_batch_size=micro_batch_size,
        val_batch_size=2,
    )
    if around is not None:
        around(trainer)
    trainer.fit(module, datamodule=loaders, ckpt_path=ckpt, weights_only=True)
    return module


__all__ = ["GumbelSchedule", "MemoryText", "fit", "plain_descent", "tiny_model", "tiny_module"]
