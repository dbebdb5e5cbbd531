"""Text tokenized and packed once, kept in a folder named after everything that decides its content.

    <cache_dir>/tokenizers/<key>/tokenizer.json    key: text, builder, code version
    <cache_dir>/shards/<key>/                      key: text, tokenizer, packing, code version (`celeris.data.prepare`)

No path or time is in a key, so a cache can be moved. A folder is written beside its place and renamed, so a reader
never sees half of one. Of the processes that want the same folder one makes it while the others wait; where the file
system has no locks they make it side by side, and do not disturb each other.
"""

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from celeris.data.packing import Manifest, Packing
from celeris.data.prepare import SPLITS, Work, pack_corpus
from celeris.data.rows import Rows
from celeris.data.sources.base import Source, Split
from celeris.data.tokenizers import TokenizerBuilder
from celeris.errors import CelerisError
from celeris.tokenizer import TextTokenizer

CODE_VERSION = "1"  # raise it when the same inputs would be packed differently
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
SECONDS_BETWEEN_WORDS = 60.0  # of a process that waits


@dataclass
class PackedText:
    """A packed corpus: rows and accounts of both splits, unigram counts (V,) int64 of the training rows."""

    key: str
    rows: dict[Split, Rows]
    manifests: dict[Split, Manifest]
    unigram: np.ndarray


def cached_tokenizer(source: Source, builder: TokenizerBuilder, cache_dir: Path) -> TextTokenizer:
    """The tokenizer `builder` makes of the training text; a trained one is trained once."""
    if not builder.trained:
        return builder(())
    folder = cache_dir / "tokenizers" / _key(source.fingerprint(), repr(builder))

    def train() -> None:
        tokenizer = builder(source.documents("train"))
        with _new_folder(folder) as new:
            tokenizer.save(new)

    made_once(folder, f"the tokenizer of {source.title}", train)
    return TextTokenizer.load(folder)


def cached_rows(
    source: Source,
    tokenizer: TextTokenizer,
    packing: Packing,
    cache_dir: Path,
    workers: int = 0,
    done: Work | None = None,
) -> PackedText:
    """The packed corpus, made first if it is not there, by `workers` processes; `done` counts what is made."""
    key = _key(source.fingerprint(), tokenizer.fingerprint, repr(packing))
    folder, done = cache_dir / "shards" / key, Work() if done is None else done
    made_once(
        folder, f"the rows of {source.title}", lambda: pack_corpus(source, tokenizer, packing, folder, workers, done)
    )
    return _read(folder, key)


def made_once(folder: Path, what: str, make: Callable[[], None]) -> None:
    """Let `make` make `folder` unless it is there; of many processes, also of other nodes, the first one does."""
    if folder.is_dir():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _closed(folder.parent, error) from error
    with _turn(folder.parent / f".{folder.name}.lock", what):
        if not folder.is_dir():
            make()


@contextmanager
def _turn(file: Path, what: str) -> Iterator[None]:
    """Hold the lock `file`, which the system lets go when its holder dies; say so while another process holds it."""
    lock, start, patience = FileLock(file), time.monotonic(), 0.0
    try:
        while True:
            try:
                lock.acquire(timeout=patience)
                break
            except Timeout:
                waited = time.monotonic() - start
                print(f"waiting for {what}: another process makes it ({waited:.0f} s; {file})", flush=True)
                patience = SECONDS_BETWEEN_WORDS
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise _closed(file.parent, error) from error
        print(f"The file system of {file.parent} has no locks: every process that needs {what} makes it.", flush=True)
    try:
        yield
    finally:
        lock.release()


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join([CODE_VERSION, *parts]).encode()).hexdigest()[:32]


def _closed(folder: Path, error: OSError) -> CelerisError:
    return CelerisError(
        f"The cache {folder} cannot be written ({error.strerror}); set paths.cache_dir= to another folder."
    )


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    try:
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise _closed(folder.parent, error) from error
    try:
        yield new
        os.chmod(new, 0o755)
        try:
            os.rename(new, folder)
        except OSError:  # another process was first; its content is the same
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _read(folder: Path, key: str) -> PackedText:
    try:
        record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        manifests: dict[Split, Manifest] = {s: Manifest(**record["splits"][s]["manifest"]) for s in SPLITS}
        length, dtype = record["length"], record["dtype"]
        rows: dict[Split, Rows] = {}
        for split in SPLITS:
            sizes = record["splits"][split]["shards"]
            files = [folder / f"{split}-{number:05d}.bin" for number in range(len(sizes))]
            for file, size in zip(files, sizes, strict=True):
                if file.stat().st_size != size * np.dtype(dtype).itemsize:
                    raise ValueError(f"{file.name} has the wrong size")
            rows[split] = Rows(files, sizes, manifests[split].rows, length, dtype)
        return PackedText(key, rows, manifests, np.load(folder / "unigram.npy"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CelerisError(
            f"The cached text {folder} is damaged ({error}); delete that folder to have it made again."
        ) from error
