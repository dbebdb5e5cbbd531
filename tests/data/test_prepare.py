"""Preparing: the same shards whoever makes them, nothing done twice, memory bounded (field cases B4, B9, B10)."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from celeris.data import cache, shards
from celeris.data.packing import PackedRows, PaddedRows, PairRows
from celeris.data.pieces import cut, encode_documents
from celeris.data.prepare import Work
from celeris.data.pretrained import GPT2Tokenizer
from celeris.data.tokenizers import BPETokenizer, ByteTokenizer, CharTokenizer
from celeris.errors import CelerisError
from tests.data.corpora import LINES, Memory, corpus
from tests.data.synthetic import write_corpus

ROOT = Path(__file__).parents[2]


def hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file of the prepared corpora in a cache."""
    files = sorted(file for file in (folder / "shards").glob("*/*") if not file.parent.name.startswith("."))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def many(monkeypatch):
    """Shards of a few hundred characters."""
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", 300)


@pytest.mark.parametrize("packing", [PackedRows(16), PackedRows(1000), PaddedRows(16)], ids=repr)
@pytest.mark.parametrize("size", [1, 100, 1000])
def test_where_shards_end_changes_no_row_and_no_account(packing, size, tmp_path, monkeypatch):
    """Rows that begin in one shard and end in a later one, and a remainder that lies in several."""
    whole = corpus(tmp_path / "whole", packing=packing).packed
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", size)
    parts = corpus(tmp_path / "parts", packing=packing).packed
    assert len(parts.rows["train"].files) > 1 == len(whole.rows["train"].files)
    assert parts.key == whole.key and parts.manifests == whole.manifests
    assert (parts.unigram == whole.unigram).all()
    for split in ("train", "val"):
        assert (parts.rows[split][:] == whole.rows[split][:]).all()
        m = parts.manifests[split]
        assert m.tokens_in == m.tokens_out + m.tokens_dropped and m.tokens_dropped < packing.length


def test_rows_are_found_by_number_list_slice_and_from_the_end(tmp_path, many):
    rows = corpus(tmp_path).train
    every, count = rows[:].numpy(), len(rows)
    assert (rows[np.array([3, 0, count - 1])].numpy() == every[[3, 0, -1]]).all()
    assert (rows[-2].numpy() == every[-2]).all() and rows[0].shape == (16,)
    assert (rows[5:40:7].numpy() == every[5:40:7]).all() and rows[[]].shape == (0, 16)
    for wrong in (count, -count - 1):
        with pytest.raises(IndexError):
            _ = rows[wrong]


def test_a_second_start_makes_only_what_is_missing(tmp_path, many, monkeypatch):
    """As after kill -9: some shards are there, one is half written, one has no account yet."""
    straight = Work()
    corpus(tmp_path / "straight").prepare(done=straight)
    write, written = shards.ShardWriter.write, []

    def killed(self, name, documents):
        if len(written) == 5:
            raise KeyboardInterrupt
        written.append(name)
        return write(self, name, documents)

    monkeypatch.setattr(shards.ShardWriter, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        corpus(tmp_path / "killed").prepare()
    monkeypatch.undo()
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", 300)
    (partial,) = (tmp_path / "killed" / "shards").glob(".*.partial")
    (partial / f"{written[1]}.bin").write_bytes(b"half")
    (partial / "done" / f"{written[2]}.npz").unlink()
    (partial / f".{written[3]}.bin-x").write_bytes(b"left")
    again = Work()
    corpus(tmp_path / "killed").prepare(done=again)
    assert (again.shards_kept, again.shards_made) == (3, straight.shards_made - 3)
    assert hashes(tmp_path / "killed") == hashes(tmp_path / "straight")
    third = Work()
    data = corpus(tmp_path / "killed").prepare(done=third)
    assert (third.shards_made, third.shards_kept, third.tokens, data.source.reads) == (0, 0, 0, [])


def test_threads_that_want_one_cold_cache_tokenize_it_once_and_say_that_they_wait(tmp_path, many, monkeypatch, capsys):
    write, made = shards.ShardWriter.write, []

    def slow(self, name, documents):
        time.sleep(0.01)
        made.append(name)
        return write(self, name, documents)

    monkeypatch.setattr(shards.ShardWriter, "write", slow)
    monkeypatch.setattr(cache, "SECONDS_BETWEEN_WORDS", 0.1)
    wanted = [corpus(tmp_path) for _ in range(4)]
    threads = [threading.Thread(target=data.prepare) for data in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(set(made)) == len(wanted[0].train.files) + len(wanted[0].val.files)
    assert "waiting for the rows of memory: another process makes it" in capsys.readouterr().out


def test_without_locks_two_that_make_one_cache_do_not_disturb_each_other(tmp_path, many, monkeypatch, capsys):
    def none(*arguments, **more):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(cache.FileLock, "acquire", none)
    write, inner = shards.ShardWriter.write, corpus(tmp_path)

    def overtaken(self, name, documents):
        if name == "train-00003":
            monkeypatch.setattr(shards.ShardWriter, "write", write)
            assert len(inner.train) > 0  # another process finishes first
        return write(self, name, documents)

    monkeypatch.setattr(shards.ShardWriter, "write", overtaken)
    outer = corpus(tmp_path)
    assert (outer.train[:] == inner.train[:]).all()
    assert "has no locks" in capsys.readouterr().out
    assert len([f for f in (tmp_path / "shards").iterdir() if f.is_dir()]) == 1


def test_a_long_document_is_cut_where_no_token_changes(monkeypatch):
    monkeypatch.setattr("celeris.data.pieces.BATCH_CHARACTERS", 13)
    generator = np.random.default_rng(0)
    signs = [
        "a",
        "b",
        "'s",
        "'ll",
        " ",
        " ",
        "\n",
        "\t",
        "\r\n",
        "\u2003",
        "\x1c",
        "\x85",
        "7",
        "!",
        "é",
        "🙂",
        "<|eos|>",
    ]
    for builder in (CharTokenizer(), ByteTokenizer(), BPETokenizer(400), GPT2Tokenizer()):
        tokenizer = builder(["".join(signs), *LINES])
        for _ in range(60):
            text = "".join(generator.choice(signs, 120))
            ((same, ids),) = encode_documents([text], tokenizer)
            assert same == text and ids.tolist() == tokenizer.encode(text), repr(text)
    assert [*cut("ab cd ef", 3, at_words=True)] == ["ab cd", " ef"] and [*cut("abcde", 2, False)] == ["ab", "cd", "e"]


def test_what_a_tokenizer_of_another_kind_reads_is_never_cut(monkeypatch):
    monkeypatch.setattr("celeris.data.pieces.BATCH_CHARACTERS", 13)
    tokenizer = BPETokenizer(300)(LINES)
    tokenizer.backend.add_tokens(["ab cd"])  # joins what stands on both sides of a space
    text = "x" * 12 + "ab cd" * 20
    ((_, ids),) = encode_documents([text], tokenizer)
    assert ids.tolist() == tokenizer.encode(text)


def test_a_copy_of_a_tokenizer_still_refuses_to_see_special_tokens_in_a_text():
    import pickle

    for builder in (CharTokenizer(roles=True), ByteTokenizer(roles=True), BPETokenizer(300)):
        tokenizer = builder(["<|eos|>", *LINES])
        copy = pickle.loads(pickle.dumps(tokenizer))
        assert copy.encode("<|eos|> a") == tokenizer.encode("<|eos|> a") and tokenizer.eos_id not in copy.encode(
            "<|eos|>"
        )
        assert (copy.fingerprint, copy.roles) == (tokenizer.fingerprint, tokenizer.roles)


@pytest.mark.slow
def test_one_two_and_four_workers_make_the_same_files(tmp_path, many):
    """B10: with rows of 40,000 characters, after the tokenizer has used its threads."""
    texts = [f"{k} " + "word " * 8000 for k in range(20)] + LINES
    for workers in (1, 2, 4):
        data = corpus(tmp_path / str(workers), train=texts, builder=BPETokenizer(300))
        data.tokenizer.encode_batch(["a b"] * 100)
        work = Work()
        data.prepare(workers, work)
        assert work.shards_made > 20 and (work.peak_worker > 0) == (workers > 1)
    one, two, four = (hashes(tmp_path / str(workers)) for workers in (1, 2, 4))
    assert one == two == four and len(one) > 20


@pytest.mark.slow
def test_pairs_go_through_workers_too(tmp_path, many):
    from celeris.data.layouts import Responses
    from celeris.data.sources.wiki_pairs import WikiPairs
    from celeris.data.text_data import TextData

    kept = []
    for workers in (1, 2):
        source = WikiPairs(0.05, sentences=1)
        shards.SHARD_CHARACTERS = 1_000_000
        where = tmp_path / str(workers)
        TextData(source, CharTokenizer(roles=True), PairRows(260), Responses(4), where).prepare(workers)
        kept.append(hashes(where))
    assert kept[0] == kept[1] and len(kept[0]) > 3


def prepare(folder: Path, *words: str, limit: int = 100_000) -> subprocess.Popen:
    """The command, with shards of `limit` characters, in a process group of its own."""
    program = (
        f"import sys; from celeris.data import shards; shards.SHARD_CHARACTERS = {limit}\n"
        "from celeris.tasks.cli import main; from celeris.tasks.prepare import prepare; sys.exit(main(prepare))"
    )
    call = [sys.executable, "-c", program, "experiment=debug", "tokenizer=bpe", "tokenizer.vocab_size=400"]
    call += ["data=local_text", f"path={folder / 'corpus.jsonl'}", f"paths.cache_dir={folder / 'cache'}", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def finished(process: subprocess.Popen) -> str:
    output = process.communicate(timeout=900)[0]
    assert process.returncode == 0, output
    return output


PACK = """
import sys
from pathlib import Path
from celeris.data import shards
from celeris.data.packing import PackedRows
from celeris.data.prepare import Work, pack_corpus
from celeris.data.sources.local_text import LocalText
from celeris.data.tokenizers import BPETokenizer
shards.SHARD_CHARACTERS, work = 20_000, Work()
tokenizer = BPETokenizer(300)(["a few words"])
pack_corpus(LocalText(sys.argv[1]), tokenizer, PackedRows(64), Path(sys.argv[2]), int(sys.argv[3]), work)
print(work.shards_made, work.shards_kept, "torch" in sys.modules)
"""


@pytest.mark.slow
def test_killed_in_the_middle_the_same_call_goes_on_and_ends_with_the_same_bytes(tmp_path):
    """kill -9; the workers end with their parent."""
    corpus_file = tmp_path / "corpus.jsonl"
    write_corpus(corpus_file, 3_000_000, seed=0)

    def start(name: str, workers: int) -> subprocess.Popen:
        call = [sys.executable, "-c", PACK, str(corpus_file), str(tmp_path / name / "shards" / "key"), str(workers)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=env)

    process = start("killed", 2)
    done = tmp_path / "killed" / "shards" / ".key.20000.partial" / "done"
    while len(list(done.glob("*.npz"))) < 5:
        assert process.poll() is None
        time.sleep(0.01)
    workers = children(process.pid)
    process.kill()
    process.communicate()
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        time.sleep(0.05)
    there = len(list(done.glob("[!.]*.npz")))
    made, kept, torch_is_there = start("killed", 2).communicate()[0].split()
    assert len(workers) >= 2 and int(kept) == there >= 5 and int(made) > 5 and torch_is_there == "False"
    straight = start("straight", 1).communicate()[0].split()
    assert straight[:2] == [str(int(made) + int(kept)), "0"]
    assert hashes(tmp_path / "killed") == hashes(tmp_path / "straight")


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_memory_stays_bounded(tmp_path, workers):
    """40 MB here; the 200 MB of docs/data.md are the same command."""
    write_corpus(tmp_path / "corpus.jsonl", 40_000_000, seed=1)
    output = finished(prepare(tmp_path, f"workers={workers}", limit=16_000_000))
    line = next(line for line in output.splitlines() if line.startswith("tokenized"))
    peaks = [float(word.split(" MB")[0].rsplit(" ", 1)[1].replace(",", "")) for word in line.split("peak memory")[1:]]
    assert 100 < max(peaks) < 1000, line
    if workers > 1:
        assert float(line.split("workers ")[1].split(" MB")[0]) < 1000, line


def test_a_source_that_cannot_be_read_leaves_finished_shards(tmp_path, many):
    class Broken(Memory):
        def documents(self, split):
            for k, text in enumerate(super().documents(split)):
                if k == 30:
                    raise CelerisError("corpus.jsonl cannot be read.")
                yield text

    data = corpus(tmp_path)
    data.source = Broken(LINES)
    with pytest.raises(CelerisError, match="cannot be read"):
        data.prepare()
    work = Work()
    corpus(tmp_path).prepare(done=work)
    assert work.shards_kept >= 4
