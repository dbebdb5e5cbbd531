"""Longest copied span: against brute force, Unicode, borders of documents, and planted copies."""

import random
import time

import pytest

from celeris.errors import CelerisError
from celeris.evaluation.memorisation import Memorisation


def brute_force(text: str, documents: list[str]) -> int:
    spans = (text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1))
    return max((len(span) for span in spans if any(span in document for document in documents)), default=0)


@pytest.mark.parametrize("alphabet", ["ab", "abc \n", "aé日😀", "é\u0301\u00e9", "\ud83d\ude00a"])
def test_brute_force_agrees(alphabet):
    """Letters that share bytes are among them: é is c3 a9, 日 and 😀 begin with e6 and f0."""
    rng = random.Random(0)
    for _ in range(60):
        documents = ["".join(rng.choices(alphabet, k=rng.randrange(30))) for _ in range(rng.randrange(4))]
        texts = ["".join(rng.choices(alphabet, k=rng.randrange(20))) for _ in range(4)]
        found = Memorisation(documents).longest(texts)
        assert found == [brute_force(text, documents) for text in texts]


def test_no_span_reaches_over_two_documents():
    look = Memorisation(["the first document", "another one"])
    assert look.longest(["the first documentanother one"]) == [len("the first document")]
    assert look.longest(["document\xffanother", "", "ÿ"]) == [len("document"), 0, 0]


def test_half_a_character_is_no_copy():
    """é = c3 a9 and ã = c3 a3 share their first byte, ܩ = dc a9 and é their second."""
    assert Memorisation(["é"]).longest(["ã", "ܩ", "é"]) == [0, 0, 1]


def test_planted_copy_among_noise():
    rng = random.Random(0)
    noise = ["".join(rng.choices("abcdefgh ", k=3000)) for _ in range(20)]
    planted = "A sentence that stands in the training text, with an emoji 😀 in it."
    noise[7] = noise[7][:1500] + planted + noise[7][1500:]
    look = Memorisation(noise)
    assert look.characters == 60_000 + len(planted) and look.complete
    assert look.longest(["ZZ" + planted + "ZZ", "ZZ" + planted[:20] + "Z" + planted[20:50]]) == [len(planted), 30]


def test_reads_no_more_than_it_may():
    look = Memorisation(["abcdef", "ghijkl", "mnopqr"], max_characters=9)
    assert (look.characters, look.complete) == (9, False)
    assert look.longest(["abcdef", "ghij", "mn"]) == [6, 3, 0]
    assert Memorisation(["abc", "def"], max_characters=6).complete
    assert not Memorisation(["abc", "def"], max_characters=3).complete
    assert Memorisation([]).longest(["a"]) == [0]
    with pytest.raises(CelerisError, match="max_characters"):
        Memorisation([], max_characters=0)


@pytest.mark.slow
def test_twelve_million_characters_take_seconds():
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randrange(2, 9))) for _ in range(8000)]
    train = " ".join(rng.choices(words, k=2_100_000))
    assert len(train) > 12_000_000
    start = time.perf_counter()
    look = Memorisation([train])
    assert look.longest([train[5_000_000:5_000_500] + "X" + train[:700]]) == [700]
    assert time.perf_counter() - start < 60
