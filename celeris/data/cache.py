"""Text tokenized and packed once, kept in a folder named after everything that decides its content.

    <cache_dir>/tokenizers/<key>/tokenizer.json        key: text, builder, code version
    <cache_dir>/packed/<key>/{train,val}.bin           key: text, tokenizer, packing, code version
                            /{train,val}.starts.npy    where each document begins
                            /unigram.npy               how often each id occurs in the training rows
                            /manifest.json             where the tokens went

No path or time is in a key, so a cache can be moved. A folder is written beside its place and renamed, so a reader
never sees half of one, and two processes that write the same one do not disturb each other.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from celeris.data.packing import Manifest, Packing, PackingState, PairRows
from celeris.data.rows import Rows
from celeris.data.sources.base import Pair, Source, Split, pairs_of
from celeris.data.tokenizers import TokenizerBuilder
from celeris.errors import CelerisError
from celeris.tokenizer import TextTokenizer

CODE_VERSION = "1"  # raise it when the same inputs would be packed differently
SPLITS: tuple[Split, Split] = ("train", "val")
BATCH_CHARACTERS = 4_000_000  # text tokenized in one call


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
    if not folder.is_dir():
        tokenizer = builder(source.documents("train"))
        with _new_folder(folder) as new:
            tokenizer.save(new)
    return TextTokenizer.load(folder)


def cached_rows(source: Source, tokenizer: TextTokenizer, packing: Packing, cache_dir: Path) -> PackedText:
    """The packed corpus, made first if it is not there."""
    key = _key(source.fingerprint(), tokenizer.fingerprint, repr(packing))
    folder = cache_dir / "packed" / key
    if not folder.is_dir():
        with _new_folder(folder) as new:
            _write(source, tokenizer, packing, new)
    return _read(folder, key)


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join([CODE_VERSION, *parts]).encode()).hexdigest()[:32]


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise CelerisError(
            f"The cache {folder.parent} cannot be written ({error.strerror}); set paths.cache_dir= to another folder."
        ) from error
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


def _write(source: Source, tokenizer: TextTokenizer, packing: Packing, folder: Path) -> None:
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    record: dict = {"length": packing.length, "dtype": dtype, "splits": {}}
    for split in SPLITS:
        state = PackingState(user_id=tokenizer.roles.get("user"))
        counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
        if isinstance(packing, PairRows):
            documents = _tokenized_pairs(pairs_of(source, split), tokenizer, state.manifest)
        else:
            documents = _tokenized(source.documents(split), tokenizer, state.manifest)
        with open(folder / f"{split}.bin", "wb") as file:
            for ids in packing.pack(documents, state, tokenizer.eos_id, tokenizer.pad_id):
                file.write(ids.astype(dtype).tobytes())
                state.manifest.rows += len(ids)
                counts += np.bincount(ids.ravel(), minlength=tokenizer.vocab_size)
        np.save(folder / f"{split}.starts.npy", np.asarray(state.starts, dtype=np.int64))
        if split == "train":
            counts[tokenizer.pad_id] = 0
            np.save(folder / "unigram.npy", counts)
        record["splits"][split] = state.manifest.as_dict()
    (folder / "manifest.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _tokenized(texts: Iterable[str], tokenizer: TextTokenizer, manifest: Manifest) -> Iterator[np.ndarray]:
    for batch in _grouped(texts):
        manifest.characters += sum(map(len, batch))
        for text, ids in zip(batch, tokenizer.encode_arrays(batch), strict=True):
            manifest.bytes_utf8 += len(text.encode("utf-8"))
            if tokenizer.unk_id is not None:
                manifest.unk += int(np.count_nonzero(ids == tokenizer.unk_id))
            yield ids


def _tokenized_pairs(pairs: Iterable[Pair], tokenizer: TextTokenizer, manifest: Manifest) -> Iterator[np.ndarray]:
    """As `_tokenized`: the user's token, the prompt, the assistant's token, the response; a plain text as it is."""
    user, assistant = tokenizer.role_id("user"), tokenizer.role_id("assistant")
    for pair in pairs:
        parts = list(_tokenized([pair.response] if pair.prompt is None else pair, tokenizer, manifest))  # type: ignore[arg-type]
        yield parts[0] if pair.prompt is None else np.concatenate([[user], parts[0], [assistant], parts[1]])


def _grouped(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text) + 1
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _read(folder: Path, key: str) -> PackedText:
    try:
        record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        manifests: dict[Split, Manifest] = {s: Manifest(**record["splits"][s]) for s in SPLITS}
        length, dtype = record["length"], record["dtype"]
        rows: dict[Split, Rows] = {}
        for split in SPLITS:
            file, count = folder / f"{split}.bin", manifests[split].rows
            if file.stat().st_size != count * length * np.dtype(dtype).itemsize:
                raise ValueError(f"{file.name} has the wrong size")
            rows[split] = Rows(file, count, length, dtype, np.load(folder / f"{split}.starts.npy"))
        return PackedText(key, rows, manifests, np.load(folder / "unigram.npy"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CelerisError(
            f"The cached text {folder} is damaged ({error}); delete that folder to have it made again."
        ) from error
