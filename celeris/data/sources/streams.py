"""Text that is read where it lies, shard by shard, and never packed as a whole.

`documents()` of such a source is a sample: the beginnings of shards spread over the corpus. A trained tokenizer, the
unigram counts and the held-out rows come from it (`celeris.data.streaming`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from celeris.data.sources.base import Split, held_out, require
from celeris.data.sources.local_text import LocalText
from celeris.errors import CelerisError

SAMPLED_SHARDS = 16
LOOKED_THROUGH = 20  # a sample gives up a shard after this many times the text it wants of it


class ShardedSource(ABC):
    """A corpus in shards. Documents are held out by their hash, wherever they stand."""

    val_fraction: float
    sample_characters: int
    val_characters: int

    @property
    @abstractmethod
    def title(self) -> str: ...

    @abstractmethod
    def shards(self) -> Sequence[str]:
        """Names of the shards, in a fixed order."""

    @abstractmethod
    def texts(self, shard: str) -> Iterator[str]:
        """All documents of a shard, in the same order every time."""

    @abstractmethod
    def fingerprint(self) -> str: ...

    def training_texts(self, shard: str) -> Iterator[str]:
        """The documents of a shard that are not held out."""
        return (text for text in self.texts(shard) if not held_out(text, self.val_fraction))

    def documents(self, split: Split) -> Iterator[str]:
        """The sample: about `sample_characters` of training text, `val_characters` of held-out text."""
        names = self.shards()
        chosen = [names[k * len(names) // SAMPLED_SHARDS] for k in range(SAMPLED_SHARDS)]
        chosen = list(dict.fromkeys(chosen))
        wanted = (self.sample_characters if split == "train" else self.val_characters) / len(chosen)
        most = LOOKED_THROUGH * max(self.sample_characters, self.val_characters / self.val_fraction) / len(chosen)
        for name in chosen:
            taken = read = 0
            for text in self.texts(name):
                read += len(text)
                if held_out(text, self.val_fraction) == (split == "val"):
                    taken += len(text)
                    yield text
                if taken >= wanted or read >= most:
                    break

    def _how(self) -> str:
        return f"{self.val_fraction}:{self.sample_characters}:{self.val_characters}"


@dataclass(frozen=True)
class LocalStream(ShardedSource):
    """Files of the user (see `LocalText`), each a shard; their names and sizes tell whether they are the same.

    Attributes:
        path: a folder, or several files.
        val_fraction: share of the documents held out.
        sample_characters, val_characters: size of the sample.
        text_column, document_separator: as of `LocalText`.
    """

    path: str | Sequence[str] | None
    val_fraction: float = 0.01
    sample_characters: int = 20_000_000
    val_characters: int = 1_000_000
    text_column: str = "text"
    document_separator: str | None = None
    title = "local_stream"

    @cached_property
    def _reader(self) -> LocalText:
        return LocalText(self.path, text_column=self.text_column, document_separator=self.document_separator)

    @cached_property
    def _files(self) -> dict[str, Path]:
        """By a name that does not change when the folder is moved."""
        return {f"{number:05d}-{file.name}": file for number, file in enumerate(self._reader.files)}

    def shards(self) -> Sequence[str]:
        return list(self._files)

    def texts(self, shard: str) -> Iterator[str]:
        return self._reader.texts_of(self._files[shard])

    def fingerprint(self) -> str:
        files = [(name, file.stat().st_size) for name, file in self._files.items()]
        return f"{self.title}:{files}:{self._how()}:{self.text_column}:{self.document_separator!r}"


@dataclass(frozen=True)
class HuggingFaceStream(ShardedSource):
    """A data set of the hub, or a local folder in one of its formats, read over the network by `datasets`.

    Attributes:
        path, name, split, text_column: as of `HuggingFace`.
        revision: a commit; without one the text may change under a run.
        val_fraction, sample_characters, val_characters: as of `LocalStream`.
    """

    path: str | None
    name: str | None = None
    split: str = "train"
    val_fraction: float = 0.01
    sample_characters: int = 20_000_000
    val_characters: int = 1_000_000
    text_column: str = "text"
    revision: str | None = None

    @property
    def title(self) -> str:
        return f"{self.path}/{self.name}" if self.name else str(self.path)

    @cached_property
    def _table(self) -> Any:
        if not self.path:
            raise CelerisError("data=huggingface_stream has no data set yet; name one with data.source.path=….")
        require("datasets", "data=huggingface_stream")
        from datasets import load_dataset

        try:
            return load_dataset(self.path, self.name, split=self.split, revision=self.revision, streaming=True)
        except Exception as error:  # `datasets` raises its own, the hub's, urllib's and plain ValueErrors
            reason = str(error).strip().split("\n")[0]
            raise CelerisError(
                f"The data set {self.path!r} (name={self.name}, split={self.split}) cannot be streamed: {reason}"
            ) from error

    def shards(self) -> Sequence[str]:
        return [f"{number:05d}" for number in range(self._table.num_shards)]

    def texts(self, shard: str) -> Iterator[str]:
        # `datasets` only reads in order here: its own shuffling and positions are not used.
        for record in self._table.shard(num_shards=self._table.num_shards, index=int(shard)):
            if self.text_column not in record:
                columns = ", ".join(record)
                raise CelerisError(f"{self.path!r} has no column {self.text_column!r} but {columns}; set text_column=.")
            yield record[self.text_column] or ""

    def fingerprint(self) -> str:
        what = (self.path, self.name, self.split, self.revision, self._table.num_shards, self.text_column)
        return f"huggingface_stream:{what}:{self._how()}"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_table"}
