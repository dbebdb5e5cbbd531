"""Held-out windows and prompt pairs."""

import torch

from celeris.evaluation.windows import limited, prompt_pairs, text_windows

from .fakes import PROSE, character_tokenizer


def test_windows_are_distinct_pieces_of_single_documents():
    tokenizer = character_tokenizer(PROSE + "#")
    documents = [PROSE, "#" * 50, "short", ""]
    windows = text_windows(documents, tokenizer, count=5, length=40)
    texts = [tokenizer.decode(ids) for ids in windows]
    assert len(set(texts)) == 5
    assert all(len(ids) == 40 for ids in windows)
    assert all(text in PROSE or text == "#" * 40 for text in texts)


def test_fewer_windows_than_asked_for_and_short_documents():
    tokenizer = character_tokenizer()
    assert len(text_windows([PROSE], tokenizer, count=1000, length=40)) == len(PROSE) // 40
    assert text_windows(["peace", ""], tokenizer, count=3, length=40) == [tokenizer.encode("peace")]
    assert text_windows(["", ""], tokenizer, count=3, length=40) == []


def test_a_huge_corpus_is_not_read_to_its_end():
    def texts():
        yield "a" * 10
        yield "b" * 10
        raise AssertionError("read on")

    assert list(limited(texts(), 15)) == ["a" * 10, "b" * 10]


def test_pairs_meet_in_the_middle_of_a_paragraph():
    tokenizer = character_tokenizer()
    pairs = prompt_pairs([PROSE], tokenizer, count=10, prompt_length=20, continuation_length=15, seed=0)
    assert len(pairs) == 3  # three paragraphs
    assert pairs.prompts.shape == pairs.others.shape == (3, 20)
    assert pairs.continuations.shape == (3, 15)
    for prompt, other, continuation in zip(pairs.prompts, pairs.others, pairs.continuations, strict=True):
        whole = tokenizer.decode(prompt.tolist()) + tokenizer.decode(continuation.tolist())
        assert whole in PROSE and "\n" not in whole
        assert not torch.equal(prompt, other)
    again = prompt_pairs([PROSE], tokenizer, count=10, prompt_length=20, continuation_length=15, seed=0)
    assert torch.equal(pairs.prompts, again.prompts)


def test_no_pairs_without_two_different_paragraphs():
    tokenizer = character_tokenizer()
    for text in ("", "too short", "one paragraph of enough length", "the same line\nthe same line"):
        assert len(prompt_pairs([text], tokenizer, 10, 5, 5, seed=0)) == 0
