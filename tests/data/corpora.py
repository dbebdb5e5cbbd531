"""Small corpora in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from celeris.data.layouts import AllBlocks
from celeris.data.packing import PackedRows, Packing
from celeris.data.sources.base import Split
from celeris.data.text_data import TextData
from celeris.data.tokenizers import ByteTokenizer, TokenizerBuilder

LINES = [f"Line {i}: the quick brown fox jumps over {i * i} lazy dogs." for i in range(60)]


@dataclass
class Memory:
    """A source that counts how often each split is read."""

    train: list[str]
    val: list[str] = field(default_factory=lambda: list(LINES))
    reads: list[Split] = field(default_factory=list, compare=False)
    title = "memory"

    def documents(self, split: Split) -> Iterator[str]:
        self.reads.append(split)
        yield from self.train if split == "train" else self.val

    def fingerprint(self) -> str:
        return repr((self.train, self.val))


def corpus(
    folder: Path,
    train: list[str] | None = None,
    val: list[str] | None = None,
    builder: TokenizerBuilder | None = None,
    packing: Packing | None = None,
) -> TextData:
    return TextData(
        source=Memory(LINES if train is None else train, LINES if val is None else val),
        tokenizer_builder=builder or ByteTokenizer(),
        packing=packing or PackedRows(16),
        layout=AllBlocks(block_length=8, p_given=0.5),
        cache_dir=folder,
    )
