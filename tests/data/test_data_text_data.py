"""`TextData`: what it refuses and what it remembers (field cases B1, B7)."""

import json

import pytest

from celeris.data.packing import PackedRows, PaddedRows
from celeris.data.tokenizers import BPETokenizer, ByteTokenizer, CharTokenizer
from celeris.errors import CelerisError
from tests.data.corpora import LINES, corpus

FOREIGN = ["春眠不覚暁処処聞啼鳥 🙂"] * 50


@pytest.mark.parametrize("part", ["train", "val"])
def test_unknown_text_is_refused_by_name(tmp_path, part):
    texts = {"train": [*LINES, *FOREIGN], "val": LINES} if part == "train" else {"train": LINES, "val": FOREIGN}
    builder = CharTokenizer(max_vocab=40 if part == "train" else None)
    data = corpus(tmp_path, **texts, builder=builder)
    with pytest.raises(CelerisError, match=r"\d+\.\d% of the .* unknown to CharTokenizer\(max_vocab=") as caught:
        data.prepare()
    assert "tokenizer=byte" in str(caught.value)


@pytest.mark.parametrize("builder", [ByteTokenizer(), BPETokenizer(vocab_size=300), CharTokenizer()], ids=repr)
def test_a_fitting_tokenizer_has_no_unknown_text_and_says_so(tmp_path, builder, capsys):
    data = corpus(tmp_path, train=FOREIGN, val=FOREIGN, builder=builder).prepare()
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 and all("UNK 0.000%" in line and "dropped" in line for line in printed)
    assert data.packed.manifests["val"].unk == 0


@pytest.mark.parametrize(
    ("train", "val", "words"),
    [
        ([], LINES, "training part of memory has no text"),
        (["", ""], LINES, "training part of memory has no text"),
        (LINES, [], "held-out part of memory has no text"),
        (["short"], LINES, "6 tokens, fewer than one row of 16"),
        (LINES, ["short"], "held-out part of memory has 6 tokens"),
    ],
)
def test_too_little_text_is_refused(tmp_path, train, val, words):
    with pytest.raises(CelerisError, match=words):
        _ = corpus(tmp_path, train=train, val=val).packed


def test_description_is_plain_and_differences_are_named(tmp_path):
    data = corpus(tmp_path)
    recorded = json.loads(json.dumps(data.describe()))
    assert recorded == data.describe()
    assert recorded["packing"] == "PackedRows(length=16)" and recorded["train"]["documents"] == len(LINES)
    assert corpus(tmp_path).differences(recorded) == []
    padded = corpus(tmp_path, packing=PaddedRows(16)).differences(recorded)
    assert padded == ["packing was 'PackedRows(length=16)' and is now 'PaddedRows(length=16)'."]
    other = corpus(tmp_path, builder=BPETokenizer(300), train=LINES[:-1]).differences(recorded)
    assert [sentence.split()[0] for sentence in other] == ["source_fingerprint", "tokenizer_fingerprint"]


def test_texts_are_the_raw_documents_and_rows_give_them_back(tmp_path):
    data = corpus(tmp_path, builder=CharTokenizer(), packing=PackedRows(8))
    assert list(data.train_texts()) == list(data.val_texts()) == LINES
    characters = data.tokenizer.decode(data.val[:].flatten().tolist())
    assert "".join(LINES).startswith(characters)
    assert len(characters) == int((data.val[:] != data.tokenizer.eos_id).sum())
