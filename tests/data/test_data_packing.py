"""Packing: every token accounted for, one EOS a document (field cases B4, B15)."""

import numpy as np
import pytest

from celeris.data.packing import PackedRows, PackingState, PaddedRows
from celeris.errors import CelerisError
from tests.data.corpora import corpus

PAD, EOS = 0, 1


def packed(packing, sizes):
    documents = [np.arange(10 * d, 10 * d + size) + 2 for d, size in enumerate(sizes)]
    state = PackingState()
    stream = np.concatenate([*packing.pack(iter(documents), state, EOS, PAD), np.zeros(0, dtype=np.int64)])
    rest = state.manifest.cut(packing.length)
    rows = stream[: len(stream) - rest].reshape(-1, packing.length)
    return rows, state, [np.append(d, EOS) for d in documents if len(d)]


def starts(packing, documents):
    """Where each document begins in the stream."""
    padded = isinstance(packing, PaddedRows)
    sizes = [-(-len(d) // packing.length) * packing.length if padded else len(d) for d in documents]
    return np.cumsum([0, *sizes[:-1]]).tolist()


def test_packed_rows_account_for_every_token():
    rows, state, documents = packed(PackedRows(4), [6, 3, 0])
    m = state.manifest
    assert (m.documents, m.documents_empty) == (3, 1)
    assert (m.tokens_in, m.tokens_out, m.tokens_dropped, m.tokens_pad) == (11, 8, 3, 0)
    assert rows.ravel().tolist() == np.concatenate(documents)[:8].tolist()


@pytest.mark.parametrize("packing", [PackedRows(4), PackedRows(7), PaddedRows(4), PaddedRows(7)], ids=repr)
def test_manifest_adds_up_and_documents_are_found_again(packing):
    sizes = np.random.default_rng(0).integers(0, 30, 200).tolist()
    rows, state, documents = packed(packing, sizes)
    m = state.manifest
    assert m.tokens_in == m.tokens_out + m.tokens_dropped == sum(sizes) + sum(s > 0 for s in sizes)
    assert rows.size == m.tokens_out + m.tokens_pad
    assert m.tokens_dropped < packing.length
    assert (rows == PAD).sum() == m.tokens_pad
    stream = rows.ravel()
    for start, document in zip(starts(packing, documents), documents, strict=True):
        assert stream[start : start + len(document)].tolist() == document[: len(stream) - start].tolist()
    if isinstance(packing, PaddedRows):
        assert m.tokens_dropped == 0 and (rows == EOS).sum() == len(documents)
        for row in rows:  # PAD only at the end, and only after the document's EOS
            kept = row[row != PAD]
            assert row[: len(kept)].tolist() == kept.tolist()
            assert len(kept) == len(row) or kept[-1] == EOS


def test_one_eos_after_each_document_and_empty_ones_counted(tmp_path):
    texts = ["", " ", "a", "two\nlines"]
    data = corpus(tmp_path, train=texts, packing=PaddedRows(16))
    m = data.packed.manifests["train"]
    assert (m.documents, m.documents_empty) == (4, 1)
    assert [data.tokenizer.decode(row.tolist()) for row in data.train[:]] == texts[1:]
    assert ((data.train[:] == data.tokenizer.eos_id).sum(1) == 1).all()
    assert data.describe()["eos_policy"] == "one EOS after each document, no BOS"


def test_result_does_not_depend_on_how_much_is_tokenized_at_once(tmp_path, monkeypatch):
    whole = corpus(tmp_path / "a").packed
    monkeypatch.setattr("celeris.data.pieces.BATCH_CHARACTERS", 50)
    piecewise = corpus(tmp_path / "b").packed
    assert whole.manifests == piecewise.manifests
    assert (whole.rows["train"][:] == piecewise.rows["train"][:]).all()


def test_a_row_needs_a_token():
    for packing in (PackedRows, PaddedRows):
        with pytest.raises(CelerisError, match="length=0"):
            packing(0)
