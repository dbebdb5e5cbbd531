"""Pieces of held-out text: windows of a given length, and paragraphs cut into a prompt and its continuation."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from celeris.streams import generator
from celeris.tokenizer import TextTokenizer

_PARAGRAPH = re.compile(r"\n\s*\n|\n")
READ_AT_MOST = 20_000_000  # characters of held-out text; windows of more would not be more telling


def limited(texts: Iterable[str], characters: int = READ_AT_MOST) -> Iterator[str]:
    """The texts until their lengths pass `characters`."""
    left = characters
    for text in texts:
        yield text
        left -= len(text)
        if left <= 0:
            return


def text_windows(texts: Iterable[str], tokenizer: TextTokenizer, count: int, length: int) -> list[list[int]]:
    """`count` windows of `length` tokens, evenly spaced over the documents and never across two of them.

    Fewer come back when the text has fewer that do not overlap. When no document is long enough, whole documents
    (shorter than `length`) are taken.
    """
    documents = [tokenizer.encode(text) for text in limited(texts)]
    slots = [
        (number, start) for number, ids in enumerate(documents) for start in range(0, len(ids) - length + 1, length)
    ]
    if not slots:
        slots = [(number, 0) for number, ids in enumerate(documents) if ids]
    chosen = [slots[i * len(slots) // count] for i in range(count)] if len(slots) > count else slots
    return [documents[number][start : start + length] for number, start in chosen]


@dataclass(frozen=True)
class PromptPairs:
    """Row k of each: the true prompt of continuation k, and the prompt of another paragraph.

    Attributes:
        prompts, others: (n, S) int64.
        continuations: (n, C) int64.
    """

    prompts: torch.Tensor
    others: torch.Tensor
    continuations: torch.Tensor

    def __len__(self) -> int:
        return len(self.prompts)


def prompt_pairs(
    texts: Iterable[str], tokenizer: TextTokenizer, count: int, prompt_length: int, continuation_length: int, seed: int
) -> PromptPairs:
    """Cut paragraphs in the middle: the end of the first half is the prompt, the start of the second half follows it.

    Every prompt has exactly S = `prompt_length` tokens, every continuation C, so that a swap changes the text and
    nothing else. Paragraphs too short for that are passed over; of the rest `count` are drawn without replacement.
    The other prompt comes from a different paragraph with a different text. May return fewer pairs, even none.
    """
    halves: list[tuple[list[int], list[int]]] = []
    for document in limited(texts):
        for paragraph in _PARAGRAPH.split(document):
            ids = tokenizer.encode(paragraph.strip())
            middle = len(ids) // 2
            if middle >= prompt_length and len(ids) - middle >= continuation_length:
                halves.append((ids[middle - prompt_length : middle], ids[middle : middle + continuation_length]))
    order = torch.randperm(len(halves), generator=generator(seed, "prompt pairs")).tolist()[:count]
    chosen = [halves[k] for k in order]
    kept = [
        (prompt, chosen[(k + 1) % len(chosen)][0], continuation)
        for k, (prompt, continuation) in enumerate(chosen)
        if chosen[(k + 1) % len(chosen)][0] != prompt
    ]
    columns = [torch.tensor([pair[i] for pair in kept], dtype=torch.int64) for i in range(3)]
    return PromptPairs(*columns)
