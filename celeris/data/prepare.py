"""Pack a corpus shard by shard, with any number of worker processes; what is finished is never done again.

    <folder>'s place/.<name>.<shard size>.partial/     grows shard by shard, whoever works on it
    <folder>/{train,val}-00000.bin …                   the shards (`celeris.data.shards`)
            /unigram.npy                               how often each id occurs in the training rows
            /manifest.json                             where the tokens went, and the size of each shard

The folder is renamed to its name when it is whole. Shards come in the order of the documents and are joined by
reading them one after another, so neither their size nor the number of workers changes a row.

Workers are spawned processes of the standard library: nothing is forked after a tokenizer has started threads, any
iterator of documents can be their source, and a node of a cluster needs no service to run them.

`python -m celeris.data.prepare …` is the command line of `celeris.tasks.prepare`.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from celeris.data import shards
from celeris.data.packing import Manifest, Packing
from celeris.data.shards import ShardWriter, dtype_of, grouped, peak_memory, start_worker, work
from celeris.data.sources.base import Source, Split
from celeris.errors import CelerisError
from celeris.tokenizer import TextTokenizer

SPLITS: tuple[Split, Split] = ("train", "val")


@dataclass
class Work:
    """What has been done so far.

    Attributes:
        shards_made, shards_kept: written now, and found finished from an earlier start.
        documents, characters, tokens: of the shards written now; `tokens` with EOS and filling.
        bytes_utf8: size of their text.
        peak_worker: most memory a worker has held, bytes; 0 without workers.
        watch: called after each shard.
    """

    shards_made: int = 0
    shards_kept: int = 0
    documents: int = 0
    characters: int = 0
    bytes_utf8: int = 0
    tokens: int = 0
    peak_worker: int = 0
    watch: Callable[["Work"], None] = field(default=lambda work: None, repr=False)

    def count(self, manifest: Manifest) -> None:
        self.shards_made += 1
        self.documents += manifest.documents
        self.characters += manifest.characters
        self.bytes_utf8 += manifest.bytes_utf8
        self.tokens += manifest.tokens_out + manifest.tokens_pad
        self.watch(self)


def pack_corpus(
    source: Source, tokenizer: TextTokenizer, packing: Packing, folder: Path, workers: int, done: Work
) -> None:
    """Make `folder`, going on with what an earlier start left.

    Args:
        workers: processes that tokenize; below 2 this process does it.
        done: counts what is done.

    Raises:
        CelerisError: the folder cannot be written, or a worker was killed.
    """
    partial = folder.parent / f".{folder.name}.{shards.SHARD_CHARACTERS}.partial"
    writer = ShardWriter(tokenizer, packing, partial)
    try:
        writer.open_folder()
    except OSError as error:
        raise CelerisError(
            f"The cache {folder.parent} cannot be written ({error.strerror}); set paths.cache_dir= to another folder."
        ) from error
    names: dict[Split, list[str]] = {split: [] for split in SPLITS}
    try:
        with _hands(writer, workers, done) as write:
            for split in SPLITS:
                for number, documents in enumerate(grouped(source, split, packing)):
                    name = f"{split}-{number:05d}"
                    names[split].append(name)
                    if writer.account(name) is None:
                        write(name, documents)
                    else:
                        done.shards_kept += 1
                        done.watch(done)
        _finish(writer, names)
        os.rename(partial, folder)
    except OSError:
        if not folder.is_dir():
            raise
        shutil.rmtree(partial, ignore_errors=True)  # another process was first; its content is the same
    shutil.rmtree(folder / "done", ignore_errors=True)
    for left in folder.glob(".*"):  # of a process that was killed while it wrote
        left.unlink(missing_ok=True)


@contextmanager
def _hands(writer: ShardWriter, workers: int, done: Work) -> Iterator[Callable[[str, list[shards.Document]], None]]:
    """A function that writes a shard now, or hands it to a worker and waits while too many are on their way."""

    def count(name: str) -> None:
        account = writer.account(name)
        if account is None:
            raise FileNotFoundError(f"The shard {name} in {writer.folder} is gone.")
        done.count(account.manifest)

    def here(name: str, documents: list[shards.Document]) -> None:
        writer.write(name, documents)
        count(name)

    if workers < 2:
        yield here
        return
    pending: dict[Future[int], str] = {}

    def collect(most: int) -> None:
        while len(pending) > most:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                done.peak_worker = max(done.peak_worker, future.result())
                count(pending.pop(future))

    pool = ProcessPoolExecutor(workers, get_context("spawn"), start_worker, (writer,))

    def hand_over(name: str, documents: list[shards.Document]) -> None:
        collect(workers)  # one shard waits for each worker to become free, no more: memory stays bounded
        pending[pool.submit(work, name, documents)] = name

    try:
        yield hand_over
        collect(0)
    except BrokenProcessPool as error:
        raise CelerisError(
            "A worker was killed, most likely for want of memory; the same command with fewer workers= goes on from "
            "the last finished shard."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _finish(writer: ShardWriter, names: dict[Split, list[str]]) -> None:
    """Write what joins the shards: sizes, accounts, and the counts of the training rows."""
    dtype, length = dtype_of(writer.tokenizer), writer.packing.length
    record: dict = {"length": length, "dtype": dtype, "splits": {}}
    for split, own in names.items():
        manifest, counts, sizes = Manifest(), np.zeros(writer.tokenizer.vocab_size, dtype=np.int64), []
        for name in own:
            account = writer.account(name)
            if account is None:
                raise FileNotFoundError(f"The shard {name} in {writer.folder} is gone.")
            manifest.add(account.manifest)
            sizes.append(account.tokens)
            counts += account.counts
        rest = manifest.cut(length)
        for name in reversed(own):  # less than a row, but it may lie in several shards
            tail = np.fromfile(writer.file(name), dtype=dtype)[-rest:] if rest else np.zeros(0, dtype=np.int64)
            counts -= np.bincount(tail.astype(np.int64), minlength=len(counts))
            rest -= len(tail)
        record["splits"][split] = {"shards": sizes, "manifest": manifest.as_dict()}
        if split == "train":
            counts[writer.tokenizer.pad_id] = 0
            with shards.replacing(writer.folder / "unigram.npy") as file:
                np.save(file, counts)
    with shards.replacing(writer.folder / "manifest.json") as file:
        file.write((json.dumps(record, indent=2) + "\n").encode())


__all__ = ["SPLITS", "Work", "pack_corpus", "peak_memory"]

if __name__ == "__main__":
    import runpy

    runpy.run_module("celeris.tasks.prepare", run_name="__main__")
