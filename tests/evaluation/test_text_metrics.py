"""Entropy, diversity, repetition and known words on texts whose figures are known by hand."""

import math

import pytest
import torch

from celeris.evaluation.self_bleu import self_bleu
from celeris.evaluation.text_metrics import (
    WordVocabulary,
    describe,
    distinct,
    entropy,
    longest_run,
    mean_and_sd,
    repetition,
)


def test_entropy_of_known_histograms():
    assert entropy([]) == 0.0
    assert entropy([5] * 9) == 0.0
    assert entropy([0, 1, 2, 3] * 4) == pytest.approx(math.log(4))
    assert entropy([0] * 7 + [1] * 2 + [2]) == pytest.approx(0.8018, abs=1e-4)


def test_runs():
    assert longest_run([]) == 0
    assert longest_run([1]) == 1
    assert longest_run([1, 1, 2, 2, 2, 1]) == 3
    assert longest_run([None, None]) == 2


def test_distinct_and_repetition():
    assert distinct(["a b a b"], 2) == pytest.approx(2 / 3)
    assert distinct(["a b c d", "a b c"], 3) == pytest.approx(2 / 3)
    assert distinct(["a", ""], 2) is None
    assert distinct(["a b", "a b"], 2) == 0.5  # pooled over samples
    assert repetition(["a b c d e f"]) == 0.0
    assert repetition(["the the the the the the"]) == pytest.approx(1 - 1 / 3)
    assert repetition(["too short"]) is None


def test_known_word_share_edge_cases():
    vocabulary = WordVocabulary(["The Congress of 1790 met, 3rd I met."])
    assert "congress" in vocabulary and "CONGRESS" in vocabulary
    assert len(vocabulary) == 5  # the, congress, of, met, rd: digits and one-letter words are no words
    assert vocabulary.share(["", " ", "12 !? _"]) is None
    assert vocabulary.share(["I a b"]) is None  # words of one letter are not judged
    assert vocabulary.share(["the congress zqx met of"]) == pytest.approx(2 / 3)  # ends left out
    assert vocabulary.share(["the congress zqx met of"], whole_words_only=False) == pytest.approx(4 / 5)
    assert vocabulary.share(["ngress of the Cong"]) == 1.0  # both cut words are left out
    assert vocabulary.share(["congress"]) is None  # touches both ends
    assert vocabulary.share([" congress "]) == 1.0
    assert vocabulary.share([" the_of "]) == 1.0  # the underscore is no letter
    assert WordVocabulary(["Über naïve"]).share([" über NAÏVE "]) == 1.0
    assert WordVocabulary([]).share([" a word "]) == 0.0


def test_vocabulary_stops_reading_a_huge_corpus():
    def texts():
        yield "alpha beta"
        raise AssertionError("read on")

    assert len(WordVocabulary(texts(), max_characters=5)) == 2


def test_describe_a_degenerate_sample():
    """D15: loops and UNK show up beside whatever quality figure there is."""
    vocabulary = WordVocabulary(["the"])
    figures = describe([[7] * 1024, [7, 9, 3]], [" the" * 1024, ""], vocabulary, unk_id=9)
    assert figures.samples == 2 and figures.empty == 1
    assert figures.longest_run == 1024 and figures.longest_word_run == 1024
    assert figures.entropy == pytest.approx(math.log(3) / 2)
    assert figures.entropy_pooled < 0.02
    assert figures.unk_rate == pytest.approx(1 / 1027)
    assert figures.rep_4 is not None and figures.rep_4 > 0.99
    assert figures.known_word_share == 1.0


def test_describe_refuses_no_samples():
    with pytest.raises(ValueError, match="at least one"):
        describe([], [], WordVocabulary([]))


def test_lengths_in_tokens_and_characters():
    figures = describe([[1], [1, 2, 3], []], ["a", "日b😀", ""], WordVocabulary([]))
    assert (figures.mean_length, figures.min_length, figures.max_length) == (4 / 3, 0, 3)
    assert figures.sd_length == pytest.approx(math.sqrt(7 / 3))
    assert (figures.mean_characters, figures.min_characters, figures.max_characters) == (4 / 3, 0, 3)
    assert mean_and_sd([5.0]) == (5.0, 0.0)
    assert describe([[1]], ["a"], WordVocabulary([])).sd_characters == 0.0


def test_self_bleu_of_equal_and_of_disjoint_texts():
    text = "the report of the secretary shows a steady advance"
    assert self_bleu([text, text, text]) == pytest.approx(100.0)
    assert self_bleu(["a b", "a b"]) == pytest.approx(100.0)  # shorter than the longest n-gram
    assert self_bleu([text, "we must now look after our own harbours"]) == pytest.approx(0.0, abs=1.0)
    assert self_bleu([text]) is None and self_bleu([text, "  ", ""]) is None
    some = self_bleu([text, text.replace("steady", "sudden")])
    assert some is not None and 10 < some < 90


def test_self_bleu_by_hand():
    """One word of six replaced; precisions 5/6, 3/5, 1/4 and, smoothed, (1/2)/3; equal lengths, so no penalty."""
    value = self_bleu(["a b c d e f", "a b c x e f"])
    assert value == pytest.approx(100 * (5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25)


def test_self_bleu_draws_by_its_seed_and_not_from_the_global_stream():
    texts = [" ".join(str((i * k) % 7) for i in range(12)) for k in range(1, 30)]
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (self_bleu(texts, max_texts=5, seed=s) for s in (0, 0, 1))
    assert first == again != other
    assert torch.equal(before, torch.get_rng_state())
    assert self_bleu(texts, max_texts=100) == self_bleu(texts, max_texts=29, seed=9)
