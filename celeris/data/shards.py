"""The part of packing that any number of processes can share: a shard is the stream of some whole documents.

    <folder>/train-00000.bin         its tokens, little-endian, as narrow as the vocabulary allows
            /done/train-00000.npz    its account, written last: a shard without one is made again

What is in a shard depends on its documents, the tokenizer and the packing alone. Imports no torch: a worker is small.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from celeris.data.packing import Manifest, Packing, PackingState, PairRows
from celeris.data.pieces import encode_documents
from celeris.data.sources.base import Pair, Source, Split, pairs_of
from celeris.tokenizer import TextTokenizer

SHARD_CHARACTERS = 16_000_000
"""A shard is full once its documents have as many; where it ends decides no row."""
WRITTEN_TOKENS = 1 << 20  # tokens written at once


class Account(NamedTuple):
    """What is known of a finished shard: its share of the manifest, and how often each id occurs in it, (V,) int64."""

    manifest: Manifest
    counts: np.ndarray

    @property
    def tokens(self) -> int:
        return self.manifest.tokens_out + self.manifest.tokens_pad


Document = str | Pair


def grouped(source: Source, split: Split, packing: Packing) -> Iterator[list[Document]]:
    """The documents of a split, in order, a list a shard."""
    documents: Iterator[Document] = (
        pairs_of(source, split) if isinstance(packing, PairRows) else source.documents(split)
    )
    group: list[Document] = []
    size = 0
    for document in documents:
        group.append(document)
        size += len(document) if isinstance(document, str) else sum(len(text or "") for text in document)
        if size >= SHARD_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def dtype_of(tokenizer: TextTokenizer) -> str:
    """Integers wide enough for every id."""
    return "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"


@dataclass(frozen=True)
class ShardWriter:
    """Makes shards in `folder`, here or in a worker it is sent to."""

    tokenizer: TextTokenizer
    packing: Packing
    folder: Path

    def open_folder(self) -> None:
        (self.folder / "done").mkdir(parents=True, exist_ok=True)

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.bin"

    def account(self, name: str) -> Account | None:
        """Of the shard `name`, or None if it is not, or not wholly, there."""
        try:
            with np.load(self.folder / "done" / f"{name}.npz") as kept:
                account = Account(Manifest(*kept["manifest"].tolist()), kept["counts"])
            size = self.file(name).stat().st_size
        except (OSError, ValueError, KeyError, EOFError):
            return None
        return account if size == account.tokens * np.dtype(dtype_of(self.tokenizer)).itemsize else None

    def write(self, name: str, documents: Sequence[Document]) -> int:
        """Tokenize and pack `documents` as the shard `name`; returns the peak memory of this process, bytes."""
        tokenizer, dtype = self.tokenizer, dtype_of(self.tokenizer)
        state = PackingState(user_id=tokenizer.roles.get("user"))
        if isinstance(self.packing, PairRows):
            tokenized = tokenized_pairs(documents, tokenizer, state.manifest)  # type: ignore[arg-type]
        else:
            tokenized = tokenized_texts(documents, tokenizer, state.manifest)  # type: ignore[arg-type]
        counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
        with replacing(self.file(name)) as file:
            for ids in _joined(self.packing.pack(tokenized, state, tokenizer.eos_id, tokenizer.pad_id)):
                file.write(ids.astype(dtype).tobytes())
                counts += np.bincount(ids, minlength=tokenizer.vocab_size)
        numbers = np.asarray(list(state.manifest.as_dict().values()), dtype=np.int64)
        with replacing(self.folder / "done" / f"{name}.npz") as file:
            np.savez(file, manifest=numbers, counts=counts)
        return peak_memory()


def tokenized_texts(texts: Iterable[str], tokenizer: TextTokenizer, manifest: Manifest) -> Iterator[np.ndarray]:
    """Ids of each text; characters, bytes and unknown ones are counted in `manifest`."""
    for text, ids in encode_documents(texts, tokenizer):
        manifest.characters += len(text)
        manifest.bytes_utf8 += len(text) if text.isascii() else len(text.encode("utf-8"))
        if tokenizer.unk_id is not None:
            manifest.unk += int(np.count_nonzero(ids == tokenizer.unk_id))
        yield ids


def tokenized_pairs(pairs: Iterable[Pair], tokenizer: TextTokenizer, manifest: Manifest) -> Iterator[np.ndarray]:
    """As `tokenized_texts`: the user's token, the prompt, the assistant's token, the response; plain text as it is."""
    user, assistant = tokenizer.role_id("user"), tokenizer.role_id("assistant")
    for pair in pairs:
        texts = [pair.response] if pair.prompt is None else [pair.prompt, pair.response]
        parts = list(tokenized_texts(texts, tokenizer, manifest))
        yield parts[0] if pair.prompt is None else np.concatenate([[user], parts[0], [assistant], parts[1]])


def _joined(pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """The same stream in larger pieces."""
    waiting: list[np.ndarray] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= WRITTEN_TOKENS:
            yield np.concatenate(waiting)
            waiting, size = [], 0
    if waiting:
        yield np.concatenate(waiting)


@contextmanager
def replacing(file: Path) -> Iterator[IO[bytes]]:
    """Write beside `file`, then put it in its place: no reader and no restart ever sees half of it."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def peak_memory() -> int:
    """Most memory this process has held, bytes."""
    try:  # not ru_maxrss, in which Linux counts what the parent held when it started this process
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource  # not on Windows

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


_writer: ShardWriter | None = None


def start_worker(writer: ShardWriter) -> None:
    """In a new worker: remember what to write with, use one core, and end when the process that started it does."""
    global _writer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # as many cores as workers, not their square
    _writer = writer
    threading.Thread(target=_end_with_parent, daemon=True).start()


def work(name: str, documents: Sequence[Document]) -> int:
    """`ShardWriter.write` in a worker."""
    assert _writer is not None
    return _writer.write(name, documents)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()  # a killed parent closes nothing, and this process would wait for it for ever
        os._exit(1)
