"""The endless stream of rows of a corpus in shards: row `place` of lane `number` is a function of both and the seed.

Each lane reads its shards one after another, in a new order each pass. A shard is packed by itself (what is left at its
end, less than a row, is dropped) and its rows are cut into blocks, each of which is shuffled by itself. So the whole
state of a lane is the block it stands in, and a block can be made again from where it begins in the shard.

Where blocks begin is kept in the cache while shards are read, and lets a resumed run begin there. Nothing depends on
it: without it a lane is read from its beginning.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from celeris.data.packing import Packing, PackingState
from celeris.data.pieces import encode_documents
from celeris.data.shards import dtype_of, replacing
from celeris.data.sources.streams import ShardedSource
from celeris.errors import CelerisError
from celeris.streams import generator
from celeris.tokenizer import TextTokenizer


class Shard(NamedTuple):
    """The training documents of `name` whose number is `part` modulo `parts`."""

    name: str
    part: int
    parts: int


@dataclass
class Index:
    """Where the blocks of shards begin, as far as they have been read, in a folder.

    Attributes:
        folder: one file a shard; may be deleted at any time.
    """

    folder: Path
    _known: dict[Shard, dict] = field(default_factory=dict, init=False, repr=False)

    def blocks(self, shard: Shard) -> list[list[int]]:
        """[document, tokens of it already used] at the beginning of each block."""
        return self._of(shard)["blocks"]

    def rows(self, shard: Shard) -> int | None:
        """Rows of the shard; None: its end has not been seen."""
        return self._of(shard)["rows"]

    def add(self, shard: Shard, block: int, document: int, used: int) -> None:
        known = self._of(shard)
        if block == len(known["blocks"]):
            known["blocks"].append([document, used])
            self._save(shard)

    def finish(self, shard: Shard, rows: int) -> None:
        if self._of(shard)["rows"] is None:
            self._of(shard)["rows"] = rows
            self._save(shard)

    def _of(self, shard: Shard) -> dict:
        if shard not in self._known:
            try:
                self._known[shard] = json.loads(self._file(shard).read_text())
            except (OSError, ValueError):
                self._known[shard] = {"shard": list(shard), "blocks": [[0, 0]], "rows": None}
        return self._known[shard]

    def _save(self, shard: Shard) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self._file(shard)) as file:
                file.write(json.dumps(self._known[shard]).encode())
        except OSError:
            pass  # a full or closed disk costs the next start some time, not this one its life

    def _file(self, shard: Shard) -> Path:
        return self.folder / f"{hashlib.sha256(repr(tuple(shard)).encode()).hexdigest()[:24]}.json"


@dataclass
class Stream:
    """What all lanes share.

    Attributes:
        lanes: how many there are. With fewer shards than lanes each shard is dealt to all of them, a document each.
        block_rows: rows shuffled together.
        seed: of the orders.
        index_folder: see `Index`.
    """

    source: ShardedSource
    tokenizer: TextTokenizer
    packing: Packing
    lanes: int
    block_rows: int
    seed: int
    index_folder: Path

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.block_rows < 1:
            raise CelerisError(f"lanes={self.lanes} and block_rows={self.block_rows} must be at least 1.")
        self.index = Index(self.index_folder)
        self.dtype = dtype_of(self.tokenizer)

    def shards(self, lane: int) -> list[Shard]:
        """The shards of a lane; those of all lanes are the corpus, each document once."""
        names = self.source.shards()
        if len(names) >= self.lanes:
            return [Shard(name, 0, 1) for name in names[lane :: self.lanes]]
        return [Shard(name, lane, self.lanes) for name in names]

    def blocks(self, shard: Shard, block: int) -> Iterator[tuple[int, np.ndarray]]:
        """The blocks of a shard from number `block` on, whose beginning must be known: (number, rows (n, L))."""
        length, full = self.packing.length, self.block_rows * self.packing.length
        document, used = self.index.blocks(shard)[block]
        waiting: list[np.ndarray] = []
        size = 0
        for number, piece in self._pieces(shard, document):
            begin = used if number == document else 0
            while size + len(piece) - begin >= full:
                end = begin + full - size
                rows = np.concatenate([*waiting, piece[begin:end]]).reshape(-1, length)
                waiting, size, begin = [], 0, end
                self.index.add(shard, block + 1, number, end)
                yield block, rows
                block += 1
            waiting.append(piece[begin:])
            size += len(piece) - begin
        whole = size // length
        self.index.finish(shard, block * self.block_rows + whole)
        if whole:
            yield block, np.concatenate(waiting)[: whole * length].reshape(-1, length)

    def _pieces(self, shard: Shard, document: int) -> Iterator[tuple[int, np.ndarray]]:
        """The stream of each document from number `document` on."""
        texts = islice(self.source.training_texts(shard.name), shard.part, None, shard.parts)
        tokenizer = self.tokenizer
        for number, (_, ids) in enumerate(encode_documents(islice(texts, document, None), tokenizer), document):
            packed = list(self.packing.pack([ids], PackingState(), tokenizer.eos_id, tokenizer.pad_id))
            if packed:
                yield number, np.concatenate(packed).astype(self.dtype)


class Lane:
    """One lane, read at places that never go back."""

    def __init__(self, stream: Stream, number: int) -> None:
        self.stream, self.number = stream, number
        self._blocks: Iterator[tuple[int, np.ndarray]] | None = None
        self._first, self._rows = 0, np.zeros((0, stream.packing.length), dtype=np.int64)

    def row(self, place: int) -> np.ndarray:
        """(L,) int64."""
        if self._blocks is None:
            self._blocks = self._from(place)
        while place >= self._first + len(self._rows):
            self._first, self._rows = next(self._blocks)
        return self._rows[place - self._first].astype(np.int64)

    def _from(self, place: int) -> Iterator[tuple[int, np.ndarray]]:
        """(place of its first row, shuffled rows) of each block, from the one with `place` on."""
        index, size = self.stream.index, self.stream.block_rows
        first = epoch = 0
        while True:
            begun = first
            for shard in self._order(epoch):
                known = index.rows(shard)
                if known is None or first + known > place:
                    block = min(max(place - first, 0) // size, len(index.blocks(shard)) - 1)
                    for number, rows in self.stream.blocks(shard, block):
                        at = first + number * size
                        if at + len(rows) > place:
                            yield at, rows[self._shuffled(shard, epoch, number, len(rows))]
                    known = index.rows(shard)
                    assert known is not None
                first += known
            if first == begun:
                raise CelerisError(
                    f"Lane {self.number} of {self.stream.lanes} of {self.stream.source.title} has less text than one "
                    f"row of {self.stream.packing.length} tokens; set data.lanes= to a smaller number."
                )
            epoch += 1

    def _order(self, epoch: int) -> list[Shard]:
        own = self.stream.shards(self.number)
        order = torch.randperm(len(own), generator=generator(self.stream.seed, f"shards/{self.number}", epoch))
        return [own[k] for k in order.tolist()]

    def _shuffled(self, shard: Shard, epoch: int, block: int, rows: int) -> np.ndarray:
        purpose = f"stream/{shard.name}/{shard.part}/{shard.parts}/{epoch}"
        return torch.randperm(rows, generator=generator(self.stream.seed, purpose, block)).numpy()
