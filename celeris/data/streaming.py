"""A corpus that is tokenized while it is trained on, for text that does not fit on disk as rows.

Sample counter g is row g // lanes of lane g modulo lanes (`celeris.data.lanes`), whatever the number of ranks, loader
processes and rows of a micro-batch, so resuming needs one integer here too. Each of W ranks reads runs of M counters,
the rows of its micro-batches, and of n loader processes each takes every n-th of them: where M·W divides the number of
lanes and n divides M (or M·W·n the number of lanes), they share no lane, and no text is tokenized twice.

A lane passes over its shards for ever and meets each of their rows once a pass; lanes of unequal length begin their
next pass at different counters.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from celeris.batch import Batch
from celeris.data.lanes import Lane, Stream
from celeris.data.loader import MicroBatches
from celeris.data.packing import PairRows
from celeris.data.sources.streams import ShardedSource
from celeris.data.text_data import TextData
from celeris.errors import CelerisError


@dataclass
class StreamingText(TextData):
    """Text of a `ShardedSource`. Only its sample is packed: tokenizer, unigram counts and held-out rows come from it.

    Attributes:
        lanes: streams the text is divided into; a multiple of ranks times loader processes. Another number is another
            order.
        block_rows: rows of a lane that are shuffled together; lanes · block_rows of them are held in memory by all
            processes together.
    """

    lanes: int = 16
    block_rows: int = 256

    def __post_init__(self) -> None:
        if not isinstance(self.source, ShardedSource):
            raise CelerisError(f"A stream reads a source in shards, not {type(self.source).__name__}.")
        if isinstance(self.packing, PairRows):
            raise CelerisError("Pairs are not streamed; take packed or padded rows, or data= without a stream.")

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{super().fingerprint}:{self.lanes}:{self.block_rows}".encode()).hexdigest()[:32]

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "lanes": self.lanes, "block_rows": self.block_rows}

    def stream(self, seed: int) -> Stream:
        """The rows under a seed."""
        assert isinstance(self.source, ShardedSource)
        folder = Path(self.cache_dir) / "streams" / f"{self.packed.key}-{self.block_rows}"
        return Stream(self.source, self.tokenizer, self.packing, self.lanes, self.block_rows, seed, folder)

    def train_loader(
        self,
        micro_batch_size: int,
        seed: int,
        start: int,
        stop: int,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> "StreamBatches":
        """Batches of the sample counters [start, stop), as of `TextData.train_loader`."""
        batches = MicroBatches(
            self.train, self.bound_layout, None, seed, self.tokenizer.pad_id, micro_batch_size, start, stop, rank,
            world_size,
        )  # fmt: skip
        workers = max(num_workers, 1)
        apart = world_size * (micro_batch_size if micro_batch_size % workers == 0 else micro_batch_size * workers)
        if self.lanes % apart and world_size * workers > 1 and rank == 0:
            print(
                f"lanes={self.lanes} is not a multiple of {apart} ({world_size} rank(s), micro_batch_size="
                f"{micro_batch_size}, {workers} reading process(es)): text is tokenized more than once; set data.lanes"
                "= to such a multiple."
            )
        return StreamBatches(self.stream(seed), batches, num_workers, pin_memory)


@dataclass
class StreamRows(IterableDataset):
    """The rows of the micro-batches `batches`, one after another; of several loader processes each reads every n-th."""

    stream: Stream
    batches: MicroBatches

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        own, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        lanes: dict[int, Lane] = {}
        counters = chain.from_iterable(self.batches.counters(j).tolist() for j in range(len(self.batches)))
        for counter in islice(counters, own, None, workers):
            place, number = divmod(counter, self.stream.lanes)
            lane = lanes.setdefault(number, Lane(self.stream, number))
            yield torch.from_numpy(lane.row(place))


@dataclass
class StreamBatches:
    """The micro-batches whose counters `batches` names, of rows of a stream. Has a length, so nothing reads ahead."""

    stream: Stream
    batches: MicroBatches
    num_workers: int
    pin_memory: bool

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        own = self.batches
        rows = StreamRows(self.stream, own)
        # Spawned: a forked process must not use a tokenizer whose threads it did not inherit.
        loader = iter(
            DataLoader(
                rows,
                batch_size=None,
                num_workers=self.num_workers,
                multiprocessing_context="spawn" if self.num_workers else None,
                worker_init_fn=one_thread,
            )
        )
        for j in range(len(own)):
            counters = own.counters(j)
            ids = torch.stack([next(loader) for _ in counters])
            batch = own.layout(ids, torch.from_numpy(counters), seed=own.seed, pad_id=own.pad_id)
            yield batch.pin_memory() if self.pin_memory else batch


def one_thread(worker: int) -> None:
    """In a new loader process: its tokenizer uses one core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
