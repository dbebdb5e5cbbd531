"""The training step around a model and an objective: optimizer, learning rate, guard, EMA, and exact resume.

Nothing here depends on when a run was stopped. Randomness inside the step is seeded from (seed, step, micro-batch),
training noise from (seed, sample), data order from (seed, counter), the learning rate from (step, max_steps). What is
left to save is the state after the last complete optimizer step, and that is what a checkpoint holds, whenever it is
taken: weights, EMA and optimizer change only there, and buffers that move with every micro-batch are saved as they were
there. Nor does anything depend on how a step's rows are cut into micro-batches and dealt to ranks: each mean of the
loss is taken over the whole step (`Batch.over`), and an online fit learns from all of it at once. Only dropout follows
the micro-batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.optim import Optimizer

from celeris.batch import Batch
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.noise.online import OnlineFit
from celeris.streams import stream
from celeris.training.buffers import SettledBuffers
from celeris.training.ema import EMA
from celeris.training.guard import GradientGuard
from celeris.training.recompute import recompute
from celeris.training.resume import restarted_loops
from celeris.training.sharding import Sharding
from celeris.training.step_means import step_means
from celeris.training.validation import HeldOut, Mean, real_rows


@dataclass(frozen=True)
class StepRecord:
    """What one optimizer step measured: mean over its micro-batches on this rank, still on the device.

    Attributes:
        step: 1-based number of the step that was just taken.
        values: scalars by name, tensors or numbers.
    """

    step: int
    values: dict[str, Tensor | float]


class TrainingModule(L.LightningModule):
    """Trains `model` on `objective`.

    Args:
        model: a DiffusionLM, or a baseline.
        objective: called as objective(model, batch, seed); gives `.loss` and `.terms`. Where it has
            `counts(model, batch, seed)`, micro-batches together give the mean over their step (`Batch.over`).
        optimizer: model → optimizer whose groups carry `base_lr`.
        lr_schedule: (step, max_steps) → multiplier.
        ema: average of the weights; validation and export use it.
        guard: clips, and refuses non-finite steps.
        seed: of the run.
        global_batch_size: rows per optimizer step, over all micro-batches and ranks.
        probe: called as probe(model, batch) on held-out batches for means of its own (`LossesByLevel`); None: nothing.
        compile: compile the trunk with torch.compile.
        recompute_layers: activation checkpointing, see `celeris.training.recompute`.
        identity: plain values a resumed run must share with its checkpoint (data fingerprint, …).
    """

    def __init__(
        self,
        model: LanguageModel,
        objective: Callable[..., Any],
        *,
        optimizer: Callable[[LanguageModel], Optimizer],
        lr_schedule: Callable[[int, int], float],
        ema: EMA,
        guard: GradientGuard,
        seed: int,
        global_batch_size: int,
        probe: Callable[[Any, Batch], dict[str, Mean]] | None = None,
        compile: bool = False,
        recompute_layers: bool = False,
        identity: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.objective = model, objective
        self.ema, self.guard, self.seed = ema, guard, seed
        self.identity = {"seed": seed, "global_batch_size": global_batch_size, **(identity or {})}
        self.record: StepRecord | None = None
        self.between_steps = True  # False from the first micro-batch of a step to its update
        self._build_optimizer, self._lr_schedule = optimizer, lr_schedule
        self._compile, self._recompute = compile, recompute_layers
        self._sharding: Sharding | None = None
        self._configured = False
        self._sums: dict[str, Tensor] = {}
        self._means: dict[str, Tensor] | None = None
        self._settled: SettledBuffers | None = None
        self._held_out = HeldOut()
        self._probe = probe

    # -- set-up ---------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        if self._configured:  # Lightning may call this hook again
            return
        self._configured = True
        if self._recompute:
            recompute(self.model.layers)
        if self._compile:
            self.model.trunk.compile()
        if self.device_mesh is not None:
            replicated = self.model.schedule_parameters() + [p for p in self.model.parameters() if p.ndim == 0]
            dtype = torch.bfloat16 if self.trainer.precision == "bf16-mixed" else None
            self._sharding = Sharding(self, self.model.layers, replicated, self.device_mesh["data_parallel"], dtype)

    def configure_optimizers(self) -> Optimizer:
        return self._build_optimizer(self.model)

    def on_train_start(self) -> None:
        self._settled = SettledBuffers(self)

    # -- weights --------------------------------------------------------------------------------------------------

    def forward(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """work(model, *arguments) with whole weights. Where they are sharded, all ranks must call it together."""
        if self._sharding is not None:
            self._sharding.gather()
        return work(self.model, *arguments)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the weights are the averaged ones."""
        with self.ema.swapped(self.model):
            try:
                yield
            finally:
                if self._sharding is not None:
                    self._sharding.release()

    # -- one optimizer step ---------------------------------------------------------------------------------------

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.between_steps = False
        micro = batch_idx % self.trainer.accumulate_grad_batches
        if micro == 0:
            self._sums = {}
            self._means = None if batch.step is None else step_means(self.objective, self.model, batch.step, self.seed)
            for fit in self._online_fits():
                fit.hold()
        count = self.global_step * self.trainer.accumulate_grad_batches + micro
        torch.manual_seed(stream(self.seed, "dropout", count * self.trainer.world_size + self.global_rank))
        output = self(self.objective, replace(batch, step=None, means=self._means), self.seed)
        assert self._settled is not None
        self._settled.heal()
        for name, value in {**output.terms, "loss": output.loss}.items():
            value = value.detach()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        return output.loss

    def configure_gradient_clipping(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        """Called between the last backward of a step and the update."""
        if self._sharding is not None:
            self._sharding.settle_gradients()
        fit = self.model.schedule_parameters()
        own = {id(p) for p in fit}
        network = [p for p in self.model.parameters() if id(p) not in own]
        self._taken = self.guard.clip_and_check([network, fit], self._sums["loss"], self.global_step)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        step = self.global_step
        factor = self._lr_schedule(step, self.trainer.max_steps)
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        optimizer.step(closure=optimizer_closure)
        assert self._settled is not None
        if self._taken:
            self.ema.update(self.model, step)
            for fit in self._online_fits():
                fit.settle(lambda sums: self.trainer.strategy.reduce(sums, reduce_op="sum"))
            self._settled.settle()
        else:
            self._settled.undo()
        micro_batches = self.trainer.accumulate_grad_batches
        assert self.guard.last_norm is not None
        values: dict[str, Tensor | float] = {f"train/{name}": sum_ / micro_batches for name, sum_ in self._sums.items()}
        values |= {"train/grad_norm": self.guard.last_norm, "train/lr": factor * optimizer.param_groups[0]["base_lr"]}
        values |= {"train/skipped_steps": self.guard.skipped}
        self.record = StepRecord(step + 1, values)
        self.between_steps = True

    def _online_fits(self) -> list[OnlineFit]:
        return [part for part in self.modules() if isinstance(part, OnlineFit)]

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self._settled is not None:
            checkpoint["state_dict"] = {**checkpoint["state_dict"], **self._settled.values}
        checkpoint["celeris"] = {
            "ema": self.ema.state_dict(),
            "guard": self.guard.state_dict(),
            "identity": self.identity,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        own = checkpoint["celeris"]
        for name, value in self.identity.items():
            if own["identity"].get(name) != value:
                raise CelerisError(
                    f"The checkpoint was trained with {name}={own['identity'].get(name)} and this run has "
                    f"{name}={value}; resume with the same value, or start a new run."
                )
        self.ema.load_state_dict(own["ema"])
        self.guard.load_state_dict(own["guard"])
        checkpoint["loops"] = restarted_loops(self.trainer, checkpoint["global_step"])

    # -- validation -----------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        self._held_out.reset()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        real = real_rows(batch, self._num_val_rows())
        # A rank with none scores what fills its batch and counts nothing of it: ranks must stay in step.
        some = len(real.index) > 0
        # Weights are swapped for this one batch, so no hook between here and the next step can see the average.
        with self.averaged():
            self(self._score, real if some else batch, some)

    def _score(self, model: LanguageModel, batch: Batch, count: bool) -> None:
        output = self.objective(model, batch, stream(self.seed, "validation"))
        probed = {} if self._probe is None else self._probe(model, batch)
        counted = ((batch.canvas != model.pad_id) & ~batch.given).sum() * count
        self._held_out.add({name: value for name, value in {**output.terms, "loss": output.loss}.items()}, counted)
        for name, (mean, tokens) in probed.items():
            self._held_out.add({name: mean}, tokens * count)

    def _num_val_rows(self) -> int | None:
        datamodule = getattr(self.trainer, "datamodule", None)  # set by fit(), not declared
        return None if datamodule is None else datamodule.num_val_rows

    def on_validation_epoch_end(self) -> None:
        values = {f"val/{name}": value for name, value in self._held_out.means(self.trainer.strategy).items()}
        self.log_dict(values, logger=False, rank_zero_only=True)
        if not self.trainer.sanity_checking:
            for logger in self.trainer.loggers:
                logger.log_metrics(values, self.global_step)
