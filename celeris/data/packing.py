"""Documents to rows of a fixed length, with every token accounted for.

A packing turns token arrays (one a document) into a stream of tokens; row r is the tokens r·length … (r+1)·length − 1
of it, and less than a row at the very end is dropped. The stream of some documents followed by the stream of others is
the stream of all of them, so parts of a corpus can be packed apart from each other (`celeris.data.shards`). Every kind
ends each non-empty document with one EOS and begins none with a BOS; a document without a token is dropped and counted.
Whitespace is text like any other.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from celeris.errors import CelerisError

EOS_POLICY = "one EOS after each document, no BOS"


@dataclass
class Manifest:
    """Where the tokens of a split went: `tokens_in = tokens_out + tokens_dropped`,
    `rows · length = tokens_out + tokens_pad`.

    Attributes:
        documents, documents_empty: documents read, and how many of them had no token and were dropped.
        characters, bytes_utf8: size of the text read.
        tokens_in: tokens of the text plus one EOS a document; `unk` of them are unknown characters.
        tokens_out, tokens_dropped, tokens_pad: tokens in rows, tokens of the last incomplete row and of pairs that do
            not fit, filling.
        pairs, pairs_dropped: prompts with a response, and how many of them are longer than a row and were dropped.
    """

    documents: int = 0
    documents_empty: int = 0
    characters: int = 0
    bytes_utf8: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_pad: int = 0
    tokens_dropped: int = 0
    unk: int = 0
    rows: int = 0
    pairs: int = 0
    pairs_dropped: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def add(self, other: "Manifest") -> None:
        """Count what another part of the corpus counted."""
        for name, value in other.as_dict().items():
            setattr(self, name, getattr(self, name) + value)

    def cut(self, length: int) -> int:
        """Close the account of a whole stream: count its rows, drop what is left over, and return how much that is."""
        self.rows, rest = divmod(self.tokens_out + self.tokens_pad, length)
        self.tokens_out -= rest
        self.tokens_dropped += rest
        return rest


@dataclass
class PackingState:
    """What packing needs to carry from document to document.

    Attributes:
        manifest: the running account.
        user_id: the token that every pair begins with; None: there are none.
    """

    manifest: Manifest = field(default_factory=Manifest)
    user_id: int | None = None


@runtime_checkable
class Packing(Protocol):
    """What the cache needs of a packing; its `repr` is part of the cache key."""

    @property
    def length(self) -> int: ...

    def pack(
        self, documents: Iterable[np.ndarray], state: PackingState, eos_id: int, pad_id: int
    ) -> Iterator[np.ndarray]:
        """Pieces of the stream, (n,) int64 each, in order; `state` is complete once the iterator is exhausted."""
        ...


@dataclass(frozen=True)
class PackedRows:
    """All documents joined, cut every `length` tokens; what is left at the end (less than a row) is dropped."""

    length: int

    def __post_init__(self) -> None:
        _check_length(self.length)

    def pack(
        self, documents: Iterable[np.ndarray], state: PackingState, eos_id: int, pad_id: int
    ) -> Iterator[np.ndarray]:
        for ids in _with_eos(documents, state, eos_id):
            state.manifest.tokens_out += len(ids)
            yield ids


@dataclass(frozen=True)
class PaddedRows:
    """Each document by itself, cut every `length` tokens, its last row filled with PAD. Nothing is dropped."""

    length: int

    def __post_init__(self) -> None:
        _check_length(self.length)

    def pack(
        self, documents: Iterable[np.ndarray], state: PackingState, eos_id: int, pad_id: int
    ) -> Iterator[np.ndarray]:
        for ids in _with_eos(documents, state, eos_id):
            rows = -(-len(ids) // self.length)
            filled = np.full(rows * self.length, pad_id, dtype=np.int64)
            filled[: len(ids)] = ids
            state.manifest.tokens_out += len(ids)
            state.manifest.tokens_pad += len(filled) - len(ids)
            yield filled


@dataclass(frozen=True)
class PairRows:
    """A prompt with its response is one row, filled with PAD; what is too long for one is dropped, never cut.

    Plain documents among them are laid out as `PaddedRows` does.
    """

    length: int

    def __post_init__(self) -> None:
        _check_length(self.length)

    def pack(
        self, documents: Iterable[np.ndarray], state: PackingState, eos_id: int, pad_id: int
    ) -> Iterator[np.ndarray]:
        return PaddedRows(self.length).pack(self._fitting(documents, state), state, eos_id, pad_id)

    def _fitting(self, documents: Iterable[np.ndarray], state: PackingState) -> Iterator[np.ndarray]:
        manifest = state.manifest
        for ids in documents:
            pair = len(ids) > 0 and int(ids[0]) == state.user_id
            manifest.pairs += pair
            if pair and len(ids) + 1 > self.length:
                manifest.documents += 1
                manifest.pairs_dropped += 1
                manifest.tokens_in += len(ids) + 1
                manifest.tokens_dropped += len(ids) + 1
            else:
                yield ids


def _with_eos(documents: Iterable[np.ndarray], state: PackingState, eos_id: int) -> Iterator[np.ndarray]:
    for ids in documents:
        state.manifest.documents += 1
        if len(ids) == 0:
            state.manifest.documents_empty += 1
            continue
        state.manifest.tokens_in += len(ids) + 1
        yield np.append(ids, eos_id)


def _check_length(length: int) -> None:
    if length < 1:
        raise CelerisError(f"A row must hold at least one token, not length={length}; set a larger length=.")
