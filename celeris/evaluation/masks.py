"""Random blanks in held-out sentences, and what can be said of their fillings by counting."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from celeris.data.sources.sentences import sentences
from celeris.evaluation.text_metrics import WordVocabulary
from celeris.evaluation.windows import limited
from celeris.sampling import Blank
from celeris.streams import generator
from celeris.tokenizer import TextTokenizer


class Mask(NamedTuple):
    """A sentence with blanks: its token ids, and (begin, end) of each blank."""

    ids: list[int]
    spans: list[tuple[int, int]]

    @property
    def given(self) -> list[list[int]]:
        """Tokens before the first blank, between two, and behind the last: one more than there are blanks."""
        begins = [0, *(end for _, end in self.spans)]
        ends = [*(begin for begin, _ in self.spans), len(self.ids)]
        return [self.ids[begin:end] for begin, end in zip(begins, ends, strict=True)]


def random_masks(
    texts: Iterable[str],
    tokenizer: TextTokenizer,
    count: int,
    blanks: int,
    blank_length: tuple[int, int],
    longest: int,
    room: int,
    seed: int,
) -> tuple[list[Mask], list[Mask]]:
    """`count` sentences with blanks (fewer where there are not so many), and to each another one with equal blanks.

    Something is always given behind the last blank, so that no end of the text can make a filling shorter. Row k
    depends on the seed, k and its two sentences.

    Args:
        texts: documents, cut into sentences of at most `longest` characters.
        blanks: at most, uniform in 1 … blanks; fewer where they would be more than half of either sentence.
        blank_length: (least, most) tokens of a blank, uniform; sentences of fewer than 2·most tokens are left out.
        room: tokens of a sentence at most.
    """
    least, most = blank_length
    pieces = list(sentences(limited(texts), longest))
    encoded = zip(pieces, tokenizer.encode_batch(pieces), strict=True)
    usable = [ids for piece, ids in encoded if 2 * most <= len(ids) <= room and tokenizer.decode(ids) == piece]
    order = torch.randperm(len(usable), generator=generator(seed, "infilling sentences")).tolist()[:count]
    masks, others = [], []
    for k, number in enumerate(order):
        ids, other = usable[number], usable[order[(k + 1) % len(order)]]
        rng = generator(seed, "infilling blanks", k)
        wanted = int(torch.randint(1, blanks + 1, (), generator=rng))
        lengths = torch.randint(least, most + 1, (wanted,), generator=rng).tolist()
        while 2 * sum(lengths) > min(len(ids), len(other)):
            lengths.pop()
        masks.append(Mask(ids, _places(len(ids), lengths, rng)))
        others.append(Mask(other, _places(len(other), lengths, rng)))
    return masks, others


def _places(size: int, lengths: Sequence[int], rng: torch.Generator) -> list[tuple[int, int]]:
    """Blanks of these lengths, in order, anywhere in a row of `size` tokens but at its very end."""
    cuts = torch.randint(0, size - sum(lengths), (len(lengths),), generator=rng).sort().values.tolist()
    spans, before = [], 0
    for cut, length in zip(cuts, lengths, strict=True):
        spans.append((cut + before, cut + before + length))
        before += length
    return spans


def template_of(mask: Mask, surplus: int = 0) -> list[list[int] | Blank]:
    """The mask as `infill` takes it; with a surplus its blanks may be shorter, or longer by as much."""
    first, *others = mask.given
    template: list[list[int] | Blank] = [first] if first else []
    for (begin, end), piece in zip(mask.spans, others, strict=True):
        template.append(Blank(1, end - begin + surplus) if surplus else Blank(end - begin))
        if piece:
            template.append(piece)
    return template


def with_filling(mask: Mask, filling: Sequence[Sequence[int]]) -> list[int]:
    """The sentence with these tokens in its blanks."""
    first, *others = mask.given
    return first + [token for ids, piece in zip(filling, others, strict=True) for token in (*ids, *piece)]


def kept(mask: Mask, sequence: Sequence[int], filling: Sequence[Sequence[int]]) -> bool:
    """Whether an output is what was given, with something in its blanks."""
    return all(filling) and list(sequence) == with_filling(mask, filling)


def touched_words(
    words: WordVocabulary,
    decode: Callable[[list[int]], str],
    masks: Sequence[Mask],
    fillings: Sequence[Sequence[Sequence[int]]],
) -> float | None:
    """Share of known words among those with a letter in a blank; None where there is none."""
    known = total = 0
    for mask, filling in zip(masks, fillings, strict=True):
        ids = with_filling(mask, filling)
        text = decode(ids)
        for begin, end in _merged(_word_spans(text, decode, ids, mask, filling)):
            counts = words.count(text[begin:end], whole_words_only=False)
            known, total = known + counts[0], total + counts[1]
    return known / total if total else None


def _word_spans(
    text: str, decode: Callable[[list[int]], str], ids: list[int], mask: Mask, filling: Sequence[Sequence[int]]
) -> Iterator[tuple[int, int]]:
    """(begin, end) characters of each blank, with the rest of the words that it cuts."""
    shift = 0
    for (begin, end), own in zip(mask.spans, filling, strict=True):
        left, right = len(decode(ids[: begin + shift])), len(decode(ids[: begin + shift + len(own)]))
        shift += len(own) - (end - begin)
        while left > 0 and text[left - 1].isalpha():
            left -= 1
        while right < len(text) and text[right].isalpha():
            right += 1
        yield left, right


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, those that overlap made one."""
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
