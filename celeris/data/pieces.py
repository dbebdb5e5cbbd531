"""Tokenize a few megabytes at a time, however long the documents are.

A long document (a corpus in one file) is cut where the cut changes no token, for the tokenizers of which that is
known: characters, bytes, and GPT-2's rule of words. With any other tokenizer a document is tokenized as a whole.
"""

import json
import re
from collections.abc import Iterable, Iterator

import numpy as np
from tokenizers import models, pre_tokenizers

from celeris.tokenizer import TextTokenizer

BATCH_CHARACTERS = 1_000_000
"""Text tokenized in one call, and the longest piece of a document."""
WORD_END = re.compile(r"\S(?=[ \t\r\n])")  # Python and GPT-2 agree that these are white space, not on every character


def encode_documents(texts: Iterable[str], tokenizer: TextTokenizer) -> Iterator[tuple[str, np.ndarray]]:
    """Each text with its ids, (length of the text in tokens,) int64."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if len(text) > BATCH_CHARACTERS and batch:
            yield from zip(batch, tokenizer.encode_arrays(batch), strict=True)
            batch, size = [], 0
        if len(text) > BATCH_CHARACTERS:
            yield text, np.concatenate([tokenizer.encode_arrays([part])[0] for part in _parts(text, tokenizer)])
            continue
        batch.append(text)
        size += len(text) + 1
        if size >= BATCH_CHARACTERS:
            yield from zip(batch, tokenizer.encode_arrays(batch), strict=True)
            batch, size = [], 0
    if batch:
        yield from zip(batch, tokenizer.encode_arrays(batch), strict=True)


def cut(text: str, longest: int, at_words: bool) -> Iterator[str]:
    """Parts of `text` of about `longest` characters; with `at_words` each begins with the white space after a word."""
    start = 0
    while start < len(text):
        end = start + longest
        if at_words and end < len(text):
            found = WORD_END.search(text, end - 1)
            end = len(text) if found is None else found.end()
        yield text[start:end]
        start = end


def _parts(text: str, tokenizer: TextTokenizer) -> Iterator[str]:
    r"""GPT-2's expression never joins what stands before white space with what follows.

    `'s|'t|… | ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: white space can only begin a match, so there is a
    boundary wherever it follows something else, and what is matched from there on looks at nothing before it.
    """
    backend = tokenizer.backend
    words = backend.pre_tokenizer
    plain = (
        isinstance(backend.model, models.BPE)
        and isinstance(words, pre_tokenizers.ByteLevel)
        and not words.add_prefix_space
        and backend.normalizer is None
        and all(token.special for token in backend.get_added_tokens_decoder().values())
    )
    anywhere = tokenizer.looks_up or (plain and not json.loads(backend.to_str())["model"]["merges"])
    if anywhere or (plain and words.use_regex):
        return cut(text, BATCH_CHARACTERS, at_words=not anywhere)
    return iter([text])
