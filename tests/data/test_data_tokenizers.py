"""Tokenizers: exact round trips, forged special tokens, the code-point table, storage (field cases B1, B2)."""

import random

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from celeris.data.pretrained import GPT2Tokenizer, PretrainedTokenizer
from celeris.data.tokenizers import BPETokenizer, ByteTokenizer, CharTokenizer
from celeris.errors import CelerisError
from celeris.tokenizer import TextTokenizer, character_backend
from tests.data.corpora import LINES

AWKWARD = [
    " ?", "y is ?", "x != y", " lead", "trail ", "a\n\n b", "\t", "e\u0301", "日本語のテキスト", "👨‍👩‍👧‍👦", "🇫🇷", 
    "\u200d", "\u2581", "\r\n", "\x00", "", " ", "<|eos|>", "a<|pad|>b<|unk|>", "don't ##x n't", "\ufffd", "\U0010ffff",
]  # fmt: skip
BUILDERS = [ByteTokenizer(), BPETokenizer(vocab_size=300), CharTokenizer()]


@pytest.mark.parametrize("builder", BUILDERS, ids=repr)
def test_decoding_gives_the_text_back(builder, tmp_path):
    tokenizer = builder([*LINES, *AWKWARD])
    tokenizer.save(tmp_path)
    stored = TextTokenizer.load(tmp_path)
    for text in AWKWARD:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert not {tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id} & set(ids), "a text forged a special token"
        assert stored.encode(text) == ids and stored.decode(ids) == text
    assert tokenizer.encode_batch(AWKWARD) == [tokenizer.encode(text) for text in AWKWARD]
    assert stored.fingerprint == tokenizer.fingerprint
    assert (stored.pad_id, stored.eos_id, stored.unk_id) == (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id)


def test_special_ids_and_their_decoding():
    for builder in BUILDERS:
        tokenizer = builder(LINES)
        assert (tokenizer.pad_id, tokenizer.eos_id) == (0, 1)
        assert tokenizer.decode([0, *tokenizer.encode("ab"), 1, 0]) == "ab"
    characters = CharTokenizer()(["aab"])
    assert characters.encode("abc") == [3, 4, characters.unk_id]  # most frequent first
    assert len(characters.decode(characters.encode("a日b"))) == 3, "an unknown character must count as one"


def test_bytes_are_ids_minus_two():
    tokenizer = ByteTokenizer()([])
    assert tokenizer.vocab_size == 258
    text = "é日👨‍👩‍👧‍👦\x00"
    assert [i - 2 for i in tokenizer.encode(text)] == list(text.encode())


def test_code_point_table_is_the_stored_tokenizer():
    rng = random.Random(0)
    known = [chr(c) for c in rng.sample(range(32, 0x2FFF), 300)]
    tokenizer = TextTokenizer(character_backend(known), 0, 1, 2)
    assert tokenizer._table is not None
    points = [*map(ord, known), *range(0, 0x3100, 7), 0xFFFF, 0x10000, 0x10FFFF]
    texts = ["".join(chr(c) for c in rng.choices(points, k=200)) for _ in range(20)]
    plain = [tokenizer.backend.encode(text, add_special_tokens=False).ids for text in texts]
    assert tokenizer.encode_batch(texts) == plain


def test_no_table_for_a_tokenizer_that_only_looks_like_one():
    backend = character_backend(list("abc"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    assert TextTokenizer(backend, 0, 1, 2)._table is None


def test_trained_vocabulary_does_not_depend_on_document_order():
    for builder in (CharTokenizer(), BPETokenizer(vocab_size=300)):
        assert builder(LINES).fingerprint == builder(LINES[::-1]).fingerprint


def test_gpt2_tokenizer():
    tokenizer = GPT2Tokenizer()([])
    assert (tokenizer.vocab_size, tokenizer.eos_id, tokenizer.pad_id) == (50258, 50256, 50257)
    assert tokenizer.encode("Hello world") == [15496, 995]
    for text in AWKWARD:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_id not in tokenizer.encode("a<|endoftext|>b")


def test_pretrained_folder_keeps_ids_and_does_not_clean_up(tmp_path):
    words = ["[UNK]", "x", "!", "=", "y", "?"]
    backend = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(cleanup=True)
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"unk_token": {"content": "[UNK]"}}')
    tokenizer = PretrainedTokenizer(str(tmp_path))([])
    assert tokenizer.decode(tokenizer.encode("x ? y")) == "x ? y"
    assert tokenizer.unk_id == 0 and tokenizer.encode("z") == [0]
    assert tokenizer.vocab_size == 8 and {tokenizer.eos_id, tokenizer.pad_id} == {6, 7}


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda d: ByteTokenizer()([]).encode("a\ud83d"), "U+D83D"),
        (lambda d: BPETokenizer(vocab_size=100)(LINES), "258"),
        (lambda d: PretrainedTokenizer(str(d))([]), "tokenizer.json"),
        (lambda d: TextTokenizer.load(d), "tokenizer.json"),
        (lambda d: ((d / "tokenizer.json").write_text("{"), TextTokenizer.load(d)), "readable"),
    ],
)
def test_mistakes_end_in_a_sentence(act, words, tmp_path):
    with pytest.raises(CelerisError, match=words.replace("+", r"\+")):
        act(tmp_path)
