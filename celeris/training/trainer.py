"""A Lightning trainer set up the way this room needs it."""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import lightning as L
from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import Strategy

from celeris.errors import CelerisError
from celeris.training.callbacks.time_limit import TimeLimit
from celeris.training.checkpoint_folder import CheckpointFiles
from celeris.training.data import accumulation

_NOISE = (
    ".*your dataloader is not resumable.*",  # it is: by its start
    ".*does not have many workers.*",  # a memory-mapped row costs less than a worker's pipe
    ".*module\\(s\\) in eval mode at the start of training.*",
    ".*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*",
    ".*smaller than the logging interval.*",
    ".*The total number of parameters detected may be inaccurate.*",
    ".*It is recommended to use `self.log.*sync_dist=True.*",  # the means are those of all ranks already
    ".*torch.distributed is disabled, unavailable or uninitialized.*",  # one process reads a folder of shards
    ".*FSDP2-wrapped module.*returned a view tensor.*",  # nothing is freed before backward, and nothing is in place
)


def build_trainer(
    *,
    max_steps: int,
    global_batch_size: int,
    micro_batch_size: int | None,
    root_dir: str | Path,
    callbacks: Sequence[L.Callback] = (),
    loggers: Sequence[Logger] = (),
    val_every_n_steps: int | None = None,
    precision: str = "32-true",
    accelerator: str = "auto",
    devices: int | str = 1,
    num_nodes: int = 1,
    strategy: str | Strategy = "auto",
    max_time: str | None = None,
) -> L.Trainer:
    """The trainer; gradient accumulation follows from the batch sizes and the number of processes.

    Args:
        max_steps: optimizer steps of the whole run.
        global_batch_size, micro_batch_size: rows per optimizer step, and per forward pass of a process (None: all
            that a process has of the step).
        root_dir: the run's folder.
        callbacks, loggers: of this run.
        val_every_n_steps: optimizer steps between two validations; None validates never.
        precision: 32-true or bf16-mixed (weights, averages and the schedule stay float32).
        accelerator, devices, num_nodes, strategy: where to run, as Lightning names it, or a strategy of
            `celeris.training.strategies`.
        max_time: "DD:HH:MM:SS" of training after which this start of the run stops, checkpoints and exports; None has
            no limit.

    Raises:
        CelerisError: a count below 1, or batch sizes that do not divide.
    """
    for name, value in (("max_steps", max_steps), ("val_every_n_steps", val_every_n_steps)):
        if value is not None and value < 1:
            raise CelerisError(f"trainer.{name} is {value}; it must be at least 1.")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message)
    by_slurm = SLURMEnvironment.detect() and not TorchElasticEnvironment.detect()
    trainer = L.Trainer(
        max_steps=max_steps,
        max_epochs=-1,
        precision=precision,  # type: ignore[arg-type]
        accelerator=accelerator,
        devices=devices,
        num_nodes=num_nodes,
        strategy=strategy,
        callbacks=[*callbacks, *([] if max_time is None else [TimeLimit(max_time)])],
        logger=list(loggers),
        default_root_dir=str(root_dir),
        limit_val_batches=1.0 if val_every_n_steps else 0,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        enable_checkpointing=False,  # celeris.training.callbacks.Checkpoints writes them
        enable_progress_bar=False,  # celeris.training.callbacks.ProgressBar shows it
        enable_model_summary=False,
        use_distributed_sampler=False,  # the data room splits by rank
        inference_mode=False,  # tensors of the average are moved during validation and updated after it
        # Preemption is StopOnSignal's job; Lightning's own requeueing would save inside the signal handler.
        # torchrun inside a SLURM job comes first, as it does for Lightning.
        plugins=[CheckpointFiles(), *([SLURMEnvironment(auto_requeue=False)] if by_slurm else [])],
    )
    trainer.accumulate_grad_batches = accumulation(global_batch_size, micro_batch_size, trainer.world_size)
    trainer.val_check_interval = (val_every_n_steps or 1) * trainer.accumulate_grad_batches
    return trainer
