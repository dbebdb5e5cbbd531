"""The cache: reused when nothing changed, and only then (field cases B8, B9)."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from celeris.data.packing import PackedRows, PaddedRows
from celeris.data.tokenizers import BPETokenizer, CharTokenizer
from celeris.errors import CelerisError
from celeris.tokenizer import TextTokenizer, character_backend
from tests.data.corpora import LINES, corpus


@dataclass(frozen=True)
class Permuted:
    """Character tokenizers of one size whose ids are permuted."""

    shift: int
    trained = False

    def __call__(self, texts):
        characters = sorted(set("".join(LINES)))
        return TextTokenizer(character_backend(characters[self.shift :] + characters[: self.shift]), 0, 1, 2)


def test_another_tokenizer_of_the_same_size_has_its_own_cache(tmp_path):
    first, second = (corpus(tmp_path, builder=Permuted(shift)) for shift in (0, 5))
    assert first.tokenizer.vocab_size == second.tokenizer.vocab_size
    for data in (first, second):
        assert data.tokenizer.decode(data.train[:].ravel().tolist()).startswith("".join(LINES)[:100])
        assert data.train[0].tolist() == data.tokenizer.encode(LINES[0])[:16]
    assert first.fingerprint != second.fingerprint


def test_key_covers_text_packing_and_code_version(tmp_path, monkeypatch):
    keys = [
        corpus(tmp_path).fingerprint,
        corpus(tmp_path, train=[*LINES, "x"]).fingerprint,
        corpus(tmp_path, val=LINES[1:]).fingerprint,
        corpus(tmp_path, packing=PackedRows(8)).fingerprint,
        corpus(tmp_path, packing=PaddedRows(16)).fingerprint,
    ]
    monkeypatch.setattr("celeris.data.cache.CODE_VERSION", "other")
    keys.append(corpus(tmp_path).fingerprint)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("builder", [CharTokenizer(), BPETokenizer(vocab_size=300)], ids=repr)
def test_second_use_reads_no_text_even_in_another_place(builder, tmp_path):
    first = corpus(tmp_path / "here", builder=builder)
    rows = first.train[:]
    assert first.source.reads.count("val") == 1
    shutil.move(tmp_path / "here", tmp_path / "there")
    second = corpus(tmp_path / "there", builder=builder)
    assert (second.train[:] == rows).all()
    assert second.source.reads == []


def test_second_process_tokenizes_nothing_and_is_fast(tmp_path):
    """B9: in a process of its own, under a tenth of the time (of the work; the imports are the same)."""
    (tmp_path / "text.txt").write_text("\n".join(f"{i} {line}" for i in range(3000) for line in LINES[:20]))
    program = (
        "import time, sys; from celeris.data.text_data import TextData; from celeris.data.packing import PackedRows\n"
        "from celeris.data.tokenizers import BPETokenizer; from celeris.data.layouts import AllBlocks\n"
        "from celeris.data.sources.local_text import LocalText\n"
        "data = TextData(LocalText(sys.argv[1]), BPETokenizer(500), PackedRows(64), AllBlocks(8), sys.argv[2])\n"
        "start = time.perf_counter(); data.packed; print(time.perf_counter() - start, data.fingerprint)"
    )
    call = [sys.executable, "-c", program, str(tmp_path / "text.txt"), str(tmp_path / "cache")]
    outputs = [subprocess.run(call, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)]
    assert outputs[0][1] == outputs[1][1]
    assert float(outputs[1][0]) < 0.1 * float(outputs[0][0])


def test_half_a_cache_is_never_read(tmp_path, monkeypatch):
    data = corpus(tmp_path)
    monkeypatch.setattr("celeris.data.shards.tokenized_texts", lambda *a: (_ for _ in ()).throw(RuntimeError("killed")))
    with pytest.raises(RuntimeError, match="killed"):
        _ = data.packed
    monkeypatch.undo()
    assert len(corpus(tmp_path).train) > 0
    assert sorted(p.suffix for p in (tmp_path / "shards").iterdir()) == ["", ".lock"]


def test_damage_and_a_closed_folder_end_in_a_sentence(tmp_path):
    data = corpus(tmp_path)
    Path(data.train.files[0]).write_bytes(b"x")
    with pytest.raises(CelerisError, match="damaged"):
        _ = corpus(tmp_path).packed
    (tmp_path / "file").write_text("")
    with pytest.raises(CelerisError, match="cache_dir"):
        _ = corpus(tmp_path / "file").packed


def test_unigram_counts_are_those_of_the_training_rows(tmp_path):
    for packing in (PackedRows(16), PaddedRows(16)):
        data = corpus(tmp_path, packing=packing)
        counted = np.bincount(data.train[:].numpy().ravel(), minlength=data.tokenizer.vocab_size)
        counted[data.tokenizer.pad_id] = 0
        assert data.unigram_counts().tolist() == counted.tolist()
        assert counted.sum() == data.packed.manifests["train"].tokens_out


@pytest.mark.slow
def test_default_corpus_is_packed_in_seconds(tmp_path):
    from celeris.data.sources.sotu import Sotu

    data = corpus(tmp_path, builder=CharTokenizer(), packing=PackedRows(256))
    data.source = Sotu()
    start = time.process_time()
    rows = len(data.train)
    assert time.process_time() - start < 30 and rows > 44_000
    again = corpus(tmp_path, builder=CharTokenizer(), packing=PackedRows(256))
    again.source = Sotu()
    start = time.process_time()
    assert len(again.train) == rows and time.process_time() - start < 1
    assert [f for f in os.listdir(tmp_path / "shards") if f[0] != "."] == [data.fingerprint]
