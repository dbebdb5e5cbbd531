"""Rows of one document each: what stands behind the end of a document is what the sampler sees there."""

from pathlib import Path

import pytest
import torch

from celeris.data.layouts import AllBlocks, Documents
from celeris.data.packing import PaddedRows, PairRows
from celeris.data.sources.wiki_sentences import WikiSentences
from celeris.data.text_data import TextData
from celeris.data.tokenizers import CharTokenizer
from celeris.errors import CelerisError

PAD, EOS = 0, 1


def rows_of(*lengths: int, width: int = 32) -> torch.Tensor:
    rows = torch.zeros(len(lengths), width, dtype=torch.long)
    for row, n in zip(rows, lengths, strict=True):
        row[:n], row[n] = torch.arange(n) % 7 + 3, EOS
    return rows


def test_eos_fills_its_block_and_pad_the_blocks_behind_it() -> None:
    batch = Documents(8, eos_id=EOS)(rows_of(5, 12, 7, 8), torch.arange(4), seed=0, pad_id=PAD)
    tokens = [row.flatten().tolist() for row in batch.canvas]
    assert [(row.index(EOS), row.count(EOS), row.count(PAD)) for row in tokens] == [
        (5, 3, 8), (12, 4, 0), (7, 1, 8), (8, 8, 0)
    ]  # fmt: skip
    assert batch.start.tolist() == [[0, 8]] * 4
    assert batch.asked is not None and batch.asked.tolist() == [0] * 4  # every token of a document is learned


def test_a_full_row_is_laid_out_as_all_blocks_do() -> None:
    rows = torch.arange(32).view(2, 16) % 9 + 3  # no end in them
    one, other = (
        layout(rows, torch.arange(2), seed=0, pad_id=PAD) for layout in (Documents(8, eos_id=EOS), AllBlocks(8))
    )
    assert torch.equal(one.canvas, other.canvas) and torch.equal(one.start, other.start)
    assert torch.equal(one.context, other.context)


def test_text_data_tells_it_its_eos_and_keeps_pairs_away(tmp_path: Path) -> None:
    data = TextData(WikiSentences(), CharTokenizer(), PaddedRows(260), Documents(4), tmp_path)
    batch = next(iter(data.val_loader(8)))
    ends = (batch.canvas == data.tokenizer.eos_id).any(2)
    assert ends.any(1).all() and not (ends & (batch.canvas == data.tokenizer.pad_id).any(2)).any()
    with pytest.raises(CelerisError, match="layout=responses"):
        TextData(WikiSentences(), CharTokenizer(roles=True), PairRows(260), Documents(4), tmp_path).val_loader(2)
    with pytest.raises(CelerisError, match="Documents layout needs the ids"):
        Documents(4)(rows_of(3), torch.arange(1), seed=0, pad_id=PAD)


def test_sentences_are_as_long_as_said() -> None:
    lengths = [len(text) for split in ("train", "val") for text in WikiSentences().documents(split)]
    assert max(lengths) == 256 and 9_000 < len(lengths) < 10_033
    assert WikiSentences(most_characters=100).fingerprint() != WikiSentences().fingerprint()
