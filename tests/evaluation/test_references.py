"""Exact match, BLEU, chrF and ROUGE on pairs whose figures are known by hand."""

import pytest

from celeris.errors import CelerisError
from celeris.evaluation.references import DEFINITIONS, ROUGE, compare_with_references

SENTENCE = "the report of the secretary shows a steady advance"


def test_equal_texts_have_the_highest_figures():
    found = compare_with_references([SENTENCE, "日本語 text 😀"], [f"  {SENTENCE}\n", "日本語 text 😀"])
    assert found["exact_match"] == 1.0
    assert found["bleu"] == pytest.approx(100.0) and found["chrf"] == pytest.approx(100.0)
    assert [found[name] for name in ROUGE] == pytest.approx([1.0, 0.5, 1.0])  # one word alone makes no word pair
    assert set(DEFINITIONS) <= set(found)


def test_rouge_by_hand():
    """Three of four words, in order; one of three pairs; the case does not count."""
    found = compare_with_references(["The cat sat down"], ["the cat was down"])
    assert found["rouge_1"] == pytest.approx(3 / 4)
    assert found["rouge_2"] == pytest.approx(1 / 3)
    assert found["rouge_l"] == pytest.approx(3 / 4)
    assert found["exact_match"] == 0.0


def test_bleu_by_hand():
    """Nine words, one replaced: precisions 8/9, 6/8, 4/7, 2/6 and no brevity penalty."""
    found = compare_with_references([SENTENCE], [SENTENCE.replace("secretary", "chairman")])
    assert found["bleu"] == pytest.approx(100 * (8 / 9 * 6 / 8 * 4 / 7 * 2 / 6) ** 0.25)
    assert "tok:13a" in found["bleu_signature"] and "version:" in found["chrf_signature"]


def test_disjoint_and_empty_texts():
    found = compare_with_references(["", " ", "zzz qqq"], [SENTENCE, "", SENTENCE])
    assert found["empty"] == 2 and found["empty_references"] == 1
    assert found["exact_match"] == pytest.approx(1 / 3)  # nothing was wanted and nothing came
    assert found["bleu"] == 0.0 and found["rouge_l"] == 0.0
    assert compare_with_references([""], [""])["rouge_1"] is None
    assert compare_with_references(["日本"], ["日本"])["rouge_1"] is None
    with pytest.raises(CelerisError, match="2 texts and 1 references"):
        compare_with_references(["a", "b"], ["a"])
    with pytest.raises(CelerisError, match="0 texts"):
        compare_with_references([], [])
