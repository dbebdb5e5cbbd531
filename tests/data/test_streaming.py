"""Streams: each row once a pass, the same order for any number of readers and restarts (field cases B12, B13, B14)."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from celeris.data import lanes
from celeris.data.layouts import AllBlocks
from celeris.data.packing import PackedRows, Packing, PaddedRows, PairRows
from celeris.data.sources.streams import HuggingFaceStream, LocalStream, ShardedSource
from celeris.data.streaming import StreamingText
from celeris.data.tokenizers import BPETokenizer, ByteTokenizer, TokenizerBuilder
from celeris.errors import CelerisError
from tests.data.corpora import LINES

DIGITS = 7


@dataclass(frozen=True)
class Numbered(ShardedSource):
    """`shards` of `documents` each; document i of all is the number i, one row of 8 bytes with its EOS."""

    count: int
    documents_each: int
    val_fraction: float = 0.0
    sample_characters: int = 7000
    val_characters: int = 700
    title = "numbered"

    def shards(self) -> Sequence[str]:
        return [str(k) for k in range(self.count)]

    def texts(self, shard: str) -> Iterator[str]:
        first = int(shard) * self.documents_each
        return (f"{i:0{DIGITS}d}" for i in range(first, first + self.documents_each))

    def training_texts(self, shard: str) -> Iterator[str]:
        return self.texts(shard)

    def documents(self, split: str) -> Iterator[str]:
        return iter([f"{i:0{DIGITS}d}" for i in range(100)])

    def fingerprint(self) -> str:
        return repr(self)


def numbered(folder: Path, count: int = 20, each: int = 500, number: int = 5, block: int = 100) -> StreamingText:
    """10,000 rows, shuffled 100 at a time in each of 5 lanes."""
    source = Numbered(count, each)
    return StreamingText(source, ByteTokenizer(), PackedRows(8), AllBlocks(8), folder, lanes=number, block_rows=block)


def ids(data: StreamingText, start: int, stop: int, rank: int = 0, ranks: int = 1, micro: int = 1, workers: int = 0):
    """(counter, number of the row) in the order of a rank."""
    found = []
    for batch in data.train_loader(micro, 7, start, stop, rank, ranks, workers):
        texts = [data.tokenizer.decode(row.tolist()) for row in batch.canvas[:, 0]]
        found += [(g, int(text)) for g, text in zip(batch.index.tolist(), texts, strict=True)]
    return found


def test_an_epoch_has_each_row_once_and_any_restart_goes_on_as_if_there_had_been_none(tmp_path):
    straight = ids(numbered(tmp_path / "a"), 0, 10_000, micro=50)
    assert sorted(row for _, row in straight) == list(range(10_000))
    assert [row for _, row in straight] != list(range(10_000))
    stops = [0, 20, 137, 5_000, 10_000]  # three restarts in a row
    for fresh in (False, True):  # with what the earlier part left in the cache, and on another machine
        parts = []
        for start, stop in zip(stops, stops[1:], strict=False):
            parts += ids(numbered(tmp_path / ("c" if not fresh else str(start))), start, stop, micro=50)
        assert parts == straight


def test_a_resumed_lane_begins_at_its_block_and_not_at_the_beginning(tmp_path, monkeypatch):
    read = []
    pieces = lanes.Stream._pieces

    def counted(self, shard, document):
        for number, piece in pieces(self, shard, document):
            read.append(number)
            yield number, piece

    monkeypatch.setattr(lanes.Stream, "_pieces", counted)
    data = numbered(tmp_path)
    ids(data, 0, 9_000, micro=50)
    read.clear()
    ids(data, 9_000, 9_010)
    assert len(read) <= 5 * 100 + 5  # one block of each lane, of 9,000 rows
    shutil.rmtree(tmp_path / "streams")
    read.clear()
    ids(data, 9_000, 9_010)
    assert len(read) > 8_000


def test_later_epochs_are_whole_and_in_another_order(tmp_path):
    rows = [row for _, row in ids(numbered(tmp_path, 4, 50, 4, 20), 0, 600)]
    epochs = [rows[k : k + 200] for k in (0, 200, 400)]
    assert all(sorted(epoch) == list(range(200)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert ids(numbered(tmp_path, 4, 50, 4, 20), 500, 600) == list(enumerate(rows))[500:]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("micro", [1, 4])
def test_ranks_share_the_rows_of_one_run(ranks, micro, tmp_path):
    """Also where the number of lanes is no multiple of theirs; a run may go on with another number of them."""
    straight = ids(numbered(tmp_path, 6, 40, 4, 10), 0, 192)
    parts = []
    for start, stop, world in ((0, 48, ranks), (48, 192, 5 - ranks)):
        shares = [ids(numbered(tmp_path, 6, 40, 4, 10), start, stop, r, world, micro) for r in range(world)]
        counters = [{g for g, _ in share} for share in shares]
        assert not any(a & b for k, a in enumerate(counters) for b in counters[:k])
        parts += [pair for share in shares for pair in share]
    assert dict(straight).items() <= dict(parts).items() and len(parts) - 192 < 8  # the last batch may be filled up


def test_no_two_ranks_tokenize_the_same_text(tmp_path):
    seen = []
    for rank in range(4):
        data = numbered(tmp_path, 8, 30, 8, 10)
        stream = data.stream(7)
        used = {(rank + 4 * k) % 8 for k in range(50)}
        seen += [shard for lane in used for shard in stream.shards(lane)]
    assert max(Counter(seen).values()) == 1 and len(seen) == 8


@pytest.mark.parametrize("packing", [PackedRows(16), PaddedRows(16), PackedRows(500)], ids=repr)
@pytest.mark.parametrize(("builder", "number"), [(ByteTokenizer(), 3), (BPETokenizer(300), 4)], ids=repr)
def test_rows_of_real_text_are_those_of_packing_each_shard(packing, builder, number, tmp_path):
    """One pass over three files: documents of several blocks, the remainder of a shard dropped, none held out."""
    write_files(tmp_path / "text")
    data = local(tmp_path, packing, builder, number)
    stream = data.stream(7)
    expected: Counter = Counter()
    for lane in range(number):
        for shard in stream.shards(lane):
            joined = [i for _, piece in stream._pieces(shard, 0) for i in piece.tolist()]
            rows = [tuple(joined[k : k + packing.length]) for k in range(0, len(joined), packing.length)]
            expected.update(row for row in rows if len(row) == packing.length)
    found: Counter = Counter()
    for lane in range(number):
        for shard in stream.shards(lane):
            assert sum(len(rows) for _, rows in stream.blocks(shard, 0)) == stream.index.rows(shard)
        count = sum(stream.index.rows(shard) for shard in stream.shards(lane))
        one = lanes.Lane(data.stream(7), lane)
        found.update(tuple(one.row(place).tolist()) for place in range(count))
    assert found == expected
    texts = [text for name in data.source.shards() for text in data.source.training_texts(name)]
    dealt = [piece for lane in range(number) for shard in stream.shards(lane) for piece in stream._pieces(shard, 0)]
    assert len(dealt) == len(texts) > 100


def write_files(folder: Path) -> None:
    folder.mkdir()
    for k in range(3):
        texts = [f"{k} {i} " + line * (1 + 30 * (i % 17 == 0)) for i, line in enumerate(LINES)]
        records = [json.dumps({"text": text}) for text in texts]
        (folder / f"{k}.jsonl").write_text("\n".join(records))


def local(folder: Path, packing: Packing, builder: TokenizerBuilder, number: int) -> StreamingText:
    source = LocalStream(str(folder / "text"), val_fraction=0.2, sample_characters=9000, val_characters=1000)
    return StreamingText(source, builder, packing, AllBlocks(4), folder / "cache", lanes=number, block_rows=4)


def test_held_out_documents_never_enter_the_stream_and_the_sample_is_small(tmp_path):
    write_files(tmp_path / "text")
    data = local(tmp_path, PackedRows(16), ByteTokenizer(), 2)
    streamed = {text for name in data.source.shards() for text in data.source.training_texts(name)}
    every = {text for name in data.source.shards() for text in data.source.texts(name)}
    assert set(data.val_texts()) <= every - streamed and set(data.train_texts()) <= streamed
    assert 1000 <= sum(map(len, data.val_texts())) < 6000 and len(set(data.train_texts())) < len(streamed)
    fingerprint, moved = data.source.fingerprint(), tmp_path / "moved"
    shutil.move(tmp_path / "text", moved)
    assert LocalStream(str(moved), 0.2, 9000, 1000).fingerprint() == fingerprint


def test_what_cannot_be_streamed_ends_in_a_sentence(tmp_path):
    with pytest.raises(CelerisError, match="lanes=0"):
        numbered(tmp_path, number=0).stream(7)
    with pytest.raises(CelerisError, match="has less text than one row"):
        ids(numbered(tmp_path, 1, 3, 4), 0, 8)
    with pytest.raises(CelerisError, match="not streamed"):
        StreamingText(Numbered(1, 9), ByteTokenizer(), PairRows(8), AllBlocks(8), tmp_path)
    with pytest.raises(CelerisError, match="no data set yet"):
        HuggingFaceStream(None).fingerprint()


def test_more_readers_than_the_lanes_allow_are_named(tmp_path, capsys):
    data = numbered(tmp_path)
    data.train_loader(1, 7, 0, 8, 0, 2, 3)
    assert "multiple of 6" in capsys.readouterr().out


def test_another_order_has_another_fingerprint(tmp_path):
    made = [numbered(tmp_path, number=n, block=b).fingerprint for n, b in ((5, 100), (4, 100), (5, 99))]
    assert len(set(made)) == 3
    assert ids(numbered(tmp_path), 0, 50) != ids(numbered(tmp_path, number=4), 0, 50)


@pytest.mark.slow
def test_loader_processes_change_nothing(tmp_path):
    data = numbered(tmp_path, 6, 40, 4, 10)
    data.tokenizer.encode_batch(["a"] * 100)  # its threads must not hang the processes
    alone = ids(data, 0, 50, 1, 2, 4)
    for workers in (1, 2):
        assert ids(data, 0, 50, 1, 2, 4, workers) == alone


@pytest.mark.slow
def test_a_hub_stream_is_read_in_the_order_of_its_files(tmp_path):
    """A local folder stands for the hub; `datasets` reads, the order and the position are this package's."""
    write_files(tmp_path / "text")
    source = HuggingFaceStream(str(tmp_path / "text"), val_fraction=0.2, sample_characters=9000, val_characters=1000)
    here = LocalStream(str(tmp_path / "text"), 0.2, 9000, 1000)
    assert [list(source.texts(s)) for s in source.shards()] == [list(here.texts(s)) for s in here.shards()]
    data = StreamingText(source, ByteTokenizer(), PackedRows(16), AllBlocks(4), tmp_path / "c", lanes=3, block_rows=4)
    straight = torch.cat([batch.context for batch in data.train_loader(4, 7, 0, 64)])
    again = torch.cat([batch.context for batch in data.train_loader(4, 7, 24, 64)])
    assert torch.equal(straight[24:], again)
