"""Any text data set of the Hugging Face hub, or a local folder in one of its formats."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from celeris.data.sources.base import Split, divide, require
from celeris.errors import CelerisError

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class HuggingFace:
    """Documents of a data set, one a row, downloaded once by `datasets` (never streamed).

    Attributes:
        path: name on the hub, or a local folder.
        name: configuration of the data set, where it has several.
        split, val_split: what to train on and to hold out; without `val_split`, `val_fraction` of `split` is held out.
        text_column: column that holds the text.
        revision: branch, tag or commit of the data set.
        detokenizer: undoes the tokenization of corpora that come with spaces around every sign.
    """

    path: str | None
    name: str | None = None
    split: str = "train"
    val_split: str | None = None
    val_fraction: float = 0.01
    text_column: str = "text"
    revision: str | None = None
    detokenizer: Callable[[str], str] | None = None

    @property
    def title(self) -> str:
        return f"{self.path}/{self.name}" if self.name else str(self.path)

    @cached_property
    def training(self) -> "Dataset":
        return self._load(self.split)

    @cached_property
    def validation(self) -> "Dataset | None":
        return self._load(self.val_split) if self.val_split else None

    def documents(self, split: Split) -> Iterator[str]:
        if self.validation is None:
            return divide(lambda: self._texts(self.training), split, self.val_fraction)
        return self._texts(self.validation if split == "val" else self.training)

    def fingerprint(self) -> str:
        # `datasets` derives these from the files and the code that made the table; they do not change between starts.
        tables = [self.training._fingerprint]
        tables.append(f"{self.val_fraction}" if self.validation is None else self.validation._fingerprint)
        return f"huggingface:{':'.join(tables)}:{self.text_column}:{self.detokenizer!r}"

    def _texts(self, table: "Dataset") -> Iterator[str]:
        for batch in table.select_columns([self.text_column]).iter(batch_size=1000):
            for text in batch[self.text_column]:  # type: ignore[index]
                yield self.detokenizer(text or "") if self.detokenizer else text or ""

    def _load(self, split: str) -> "Dataset":
        if not self.path:
            raise CelerisError("data=huggingface has no data set yet; name one with data.source.path=….")
        require("datasets", "data=huggingface")
        from datasets import Dataset, load_dataset

        try:
            table = load_dataset(self.path, self.name, split=split, revision=self.revision)
        except Exception as error:  # `datasets` raises its own, the hub's, urllib's and plain ValueErrors
            reason = str(error).strip().split("\n")[0]
            raise CelerisError(
                f"The data set {self.path!r} (name={self.name}, split={split}) cannot be loaded: {reason}"
            ) from error
        assert isinstance(table, Dataset)
        if self.text_column not in table.column_names:
            columns = ", ".join(table.column_names)
            raise CelerisError(f"{self.path!r} has no column {self.text_column!r} but {columns}; set text_column=.")
        return table
