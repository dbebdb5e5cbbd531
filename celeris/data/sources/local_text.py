"""Text files of the user: .txt, .jsonl and .parquet."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from celeris.data.sources.base import Split, divide, require
from celeris.errors import CelerisError

SUFFIXES = (".txt", ".jsonl", ".parquet")
READ_CHARACTERS = 4_000_000  # of a file of many documents, at once
READ_RECORDS = 1000


@dataclass(frozen=True)
class LocalText:
    """Documents of local files, which are read as UTF-8, every character kept.

    Attributes:
        path: a file, a folder (its files and those below, in order of name), or several of either.
        val_fraction: share held out: whole documents, chosen by their hash, or the end of each of a few.
        text_column: column of .parquet and key of .jsonl that holds the text.
        document_separator: what divides a .txt file into documents; None takes each file as one.
    """

    path: str | Sequence[str] | None
    val_fraction: float = 0.05
    text_column: str = "text"
    document_separator: str | None = None
    title = "local_text"

    @cached_property
    def files(self) -> list[Path]:
        """The files to read.

        Raises:
            CelerisError: no path was given, there is nothing at it, or it is of no kind that can be read.
        """
        if not self.path:
            raise CelerisError("data=local_text has no text yet; name a file or folder with data.source.path=….")
        files: list[Path] = []
        for name in [self.path] if isinstance(self.path, str) else self.path:
            path = Path(name).expanduser()
            if not path.exists():
                raise CelerisError(f"There is no file or folder {path}; correct data.source.path=.")
            found = sorted(f for f in path.rglob("*") if f.suffix in SUFFIXES) if path.is_dir() else [path]
            if not found or found[0].suffix not in SUFFIXES:
                raise CelerisError(
                    f"{path} is not readable text; give {', '.join(SUFFIXES)} files or a folder of them."
                )
            files += found
        return files

    def documents(self, split: Split) -> Iterator[str]:
        return divide(self._all, split, self.val_fraction)

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(f"\n{file.suffix} {file.stat().st_size}\n".encode())
            with open(file, "rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
        how = f"{self.val_fraction}:{self.text_column}:{self.document_separator!r}"
        return f"{self.title}:{digest.hexdigest()}:{how}"

    def texts_of(self, file: Path) -> Iterator[str]:
        """All documents of one of the files."""
        readers = {".txt": self._text, ".jsonl": self._jsonl, ".parquet": self._parquet}
        try:
            yield from readers[file.suffix](file)
        except UnicodeDecodeError as error:
            raise CelerisError(
                f"{file} is not UTF-8 (byte {error.object[error.start]:#04x} at {error.start}); convert it first."
            ) from error
        except OSError as error:
            raise CelerisError(f"{file} cannot be read ({error.strerror or error}).") from error

    def _all(self) -> Iterator[str]:
        for file in self.files:
            yield from self.texts_of(file)

    def _text(self, file: Path) -> Iterator[str]:
        if not self.document_separator:
            yield file.read_bytes().decode("utf-8-sig")  # not read_text, which would change \r\n
            return
        rest = ""
        with open(file, encoding="utf-8-sig", newline="") as stream:
            try:
                while block := stream.read(READ_CHARACTERS):
                    *documents, rest = (rest + block).split(self.document_separator)
                    yield from documents
            except UnicodeDecodeError:
                file.read_bytes().decode("utf-8-sig")  # says where in the file, not where in the block
                raise
        yield rest

    def _jsonl(self, file: Path) -> Iterator[str]:
        with open(file, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except json.JSONDecodeError as error:
                    raise CelerisError(f"Line {number} of {file} is not JSON ({error.msg}); mend that line.") from error
                text = record.get(self.text_column) if isinstance(record, dict) else None
                if not isinstance(text, str):
                    raise CelerisError(
                        f"Line {number} of {file} has no text under {self.text_column!r}; set data.source.text_column=."
                    )
                yield text

    def _parquet(self, file: Path) -> Iterator[str]:
        require("pyarrow", f"the file {file.name}")
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.ParquetFile(file)
        except pa.ArrowException as error:
            raise CelerisError(f"{file} is not a parquet file ({error}).") from error
        with table:
            if self.text_column not in table.schema_arrow.names:
                columns = ", ".join(table.schema_arrow.names)
                raise CelerisError(
                    f"{file} has no column {self.text_column!r} but {columns}; set data.source.text_column=."
                )
            for batch in table.iter_batches(READ_RECORDS, columns=[self.text_column]):
                yield from (text or "" for text in batch.column(0).to_pylist())
