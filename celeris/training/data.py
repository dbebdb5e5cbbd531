"""Batches for Lightning: the position in the data is a function of the step, so resuming needs no loader state."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import lightning as L
from torch.utils.data import DataLoader, Subset

from celeris.batch import Batch
from celeris.errors import CelerisError


@runtime_checkable
class TextLoaders(Protocol):
    """What is asked of the data room (`celeris.data.text_data.TextData`)."""

    @property
    def val(self) -> Any: ...

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
    ) -> Iterable[Any]: ...

    def val_loader(self, batch_size: int, rank: int, world_size: int) -> DataLoader: ...


def accumulation(global_batch_size: int, micro_batch_size: int | None, world_size: int) -> int:
    """Micro-batches per optimizer step and rank; one where there is no micro-batch size.

    Raises:
        CelerisError: the global batch is not a whole number of micro-batches on every rank.
    """
    if micro_batch_size is None:
        if global_batch_size < 1 or global_batch_size % world_size:
            raise CelerisError(
                f"global_batch_size={global_batch_size} cannot be shared equally by {world_size} processes; change one."
            )
        return 1
    rows = micro_batch_size * world_size
    if min(global_batch_size, micro_batch_size) < 1 or global_batch_size % rows:
        raise CelerisError(
            f"global_batch_size={global_batch_size} is not a multiple of micro_batch_size={micro_batch_size} times "
            f"{world_size} process(es) = {rows}; change one of them."
        )
    return global_batch_size // rows


class WholeSteps:
    """The micro-batches of `loader`; the first of every `count` knows them all (`Batch.step`)."""

    def __init__(self, loader: Iterable[Batch], count: int) -> None:
        self.loader, self.count = loader, count

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        batches = iter(self.loader)
        while step := tuple(islice(batches, self.count)):
            yield replace(step[0], step=step)
            yield from step[1:]


class TextDataModule(L.LightningDataModule):
    """Serves the samples step·global_batch_size … max_steps·global_batch_size as one long epoch.

    The order of the text behind the counters is a new permutation each pass over it (`celeris.data.rows`); Lightning
    sees no epochs, so nothing happens at their ends.

    Args:
        data: the text.
        seed: of the run.
        global_batch_size, micro_batch_size: rows per optimizer step, and per forward pass of a rank.
        val_batch_size: rows per held-out batch.
        val_batches: at most this many held-out batches, evenly spread over the held-out rows; None takes all.
        num_workers: loader processes.
    """

    def __init__(
        self,
        data: TextLoaders,
        *,
        seed: int,
        global_batch_size: int,
        micro_batch_size: int,
        val_batch_size: int,
        val_batches: int | None = None,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self.data, self.seed = data, seed
        self.global_batch_size, self.micro_batch_size = global_batch_size, micro_batch_size
        self.val_batch_size, self.val_batches, self.num_workers = val_batch_size, val_batches, num_workers
        self.first_step = 0

    @property
    def num_val_rows(self) -> int:
        return len(self.data.val)

    def train_dataloader(self) -> Iterable[Any]:
        trainer = self._trainer()
        expected = accumulation(self.global_batch_size, self.micro_batch_size, trainer.world_size)
        if trainer.accumulate_grad_batches != expected:
            raise CelerisError(
                f"The trainer accumulates {trainer.accumulate_grad_batches} micro-batches where the batch sizes ask "
                f"for {expected}; build it with celeris.training.trainer.build_trainer."
            )
        loader = self.data.train_loader(
            self.micro_batch_size,
            seed=self.seed,
            start=self.first_step * self.global_batch_size,
            stop=trainer.max_steps * self.global_batch_size,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            num_workers=self.num_workers,
            pin_memory=trainer.strategy.root_device.type == "cuda",
        )
        alone = trainer.world_size * expected == 1
        return loader if alone else WholeSteps(loader, expected)

    def val_dataloader(self) -> DataLoader:
        trainer = self._trainer()
        loader = self.data.val_loader(self.val_batch_size, rank=trainer.global_rank, world_size=trainer.world_size)
        total = len(loader)
        if self.val_batches is None or self.val_batches >= total:
            return loader
        spread = [(2 * k + 1) * total // (2 * self.val_batches) for k in range(self.val_batches)]
        return DataLoader(Subset(loader.dataset, spread), batch_size=None, collate_fn=loader.collate_fn)

    def _trainer(self) -> L.Trainer:
        assert self.trainer is not None
        if self.trainer.max_steps < 1:
            raise CelerisError(f"trainer.max_steps is {self.trainer.max_steps}; it must be at least 1.")
        return self.trainer

    def state_dict(self) -> dict[str, Any]:
        assert self.trainer is not None
        return {"first_step": self.trainer.global_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Runs before anything can ask for a loader, so that an early request cannot start it at 0."""
        self.first_step = state_dict["first_step"]
