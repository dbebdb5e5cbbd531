"""Layouts: how rows of tokens become context and canvas.

A layout draws what is random about row k from the stream (seed, "layout", index of k), so a row is laid out the same
whatever batch, rank or run segment it comes in.
"""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.batch import Batch
from celeris.errors import CelerisError
from celeris.streams import generator
from celeris.tokenizer import TextTokenizer
from celeris.typing import Bool, Int

MOST_SPANS = 3


@runtime_checkable
class Layout(Protocol):
    """Makes a `Batch` of rows."""

    def __call__(self, ids: Int[Tensor, "B L"], index: Int[Tensor, "B"], *, seed: int, pad_id: int) -> Batch: ...


@dataclass(frozen=True)
class AllBlocks:
    """The row once clean as context and once cut into blocks of canvas, so that every token earns loss.

    Attributes:
        block_length: C; the row length must be a multiple of it.
        p_given: probability that a block has random given spans.
    """

    block_length: int
    p_given: float = 0.0

    def __call__(self, ids: Int[Tensor, "B L"], index: Int[Tensor, "B"], *, seed: int, pad_id: int) -> Batch:
        rows, length = ids.shape
        if length % self.block_length:
            raise CelerisError(
                f"Rows of {length} tokens cannot be cut into blocks of {self.block_length}; "
                "set length= to a multiple of block_length=."
            )
        blocks = length // self.block_length
        canvas = ids.view(rows, blocks, self.block_length)
        start = (torch.arange(blocks) * self.block_length).expand(rows, blocks).contiguous()
        given = torch.zeros(canvas.shape, dtype=torch.bool)
        if self.p_given > 0:
            for row, k in enumerate(index.tolist()):
                rng = generator(seed, "layout", k)
                given[row] = torch.stack([given_spans(block, self.p_given, rng, pad_id) for block in canvas[row]])
        return Batch(ids, canvas, start, given, index, infill=self.p_given > 0, ragged=bool((ids == pad_id).any()))


@dataclass(frozen=True)
class Split:
    """One random boundary a row: what is before it is context, the rest one canvas (N = 1).

    Attributes:
        p_empty: probability of an empty context; otherwise the boundary is uniform inside the row's real tokens.
        p_given: probability that the canvas has random given spans.
    """

    p_empty: float = 0.25
    p_given: float = 0.0

    def __call__(self, ids: Int[Tensor, "B L"], index: Int[Tensor, "B"], *, seed: int, pad_id: int) -> Batch:
        real = [int(n) for n in (ids != pad_id).sum(dim=1)]  # PAD only ever stands at the end of a row
        rngs = [generator(seed, "layout", k) for k in index.tolist()]
        starts = [self._boundary(n, rng) for n, rng in zip(real, rngs, strict=True)]
        context = ids.new_full((len(ids), max(starts)), pad_id)
        canvas = ids.new_full((len(ids), 1, max(n - s for n, s in zip(real, starts, strict=True))), pad_id)
        given = torch.zeros(canvas.shape, dtype=torch.bool)
        for row, (n, start, rng) in enumerate(zip(real, starts, rngs, strict=True)):
            context[row, :start] = ids[row, :start]
            canvas[row, 0, : n - start] = ids[row, start:n]
            given[row, 0, : n - start] = given_spans(ids[row, start:n], self.p_given, rng, pad_id)
        ragged = bool((canvas == pad_id).any())
        where, largest = torch.tensor(starts).unsqueeze(1), (1, ids.shape[1])
        return Batch(context, canvas, where, given, index, self.p_given > 0, ragged, largest=largest)

    def _boundary(self, real: int, rng: torch.Generator) -> int:
        empty, where = torch.rand(2, generator=rng, dtype=torch.float64).tolist()
        return 0 if empty < self.p_empty or real < 2 else 1 + int(where * (real - 1))


@dataclass(frozen=True)
class Documents:
    """As `AllBlocks`, for rows of one document each, whose end is to be learned: its blocks begin with the row.

    What follows EOS in its block is EOS too and earns loss: a canvas of the sampler is full of text, and PAD only fills
    whole blocks, so that all rows have as many.

    Attributes:
        block_length: C.
        p_drop: probability that the blocks of a row lose their context, as in the second call of classifier-free
            guidance; its next-token loss keeps it.
        p_given: probability that a block has random given spans.
        assistant_id, eos_id: of the tokenizer (`bind`); without an assistant token nothing in a row is only read.
    """

    block_length: int
    p_drop: float = 0.0
    p_given: float = 0.0
    assistant_id: int | None = None
    eos_id: int | None = None

    def bind(self, tokenizer: TextTokenizer) -> "Documents":
        """The same layout for rows of `tokenizer`."""
        return replace(self, eos_id=tokenizer.eos_id)

    def __call__(self, ids: Int[Tensor, "B L"], index: Int[Tensor, "B"], *, seed: int, pad_id: int) -> Batch:
        if self.eos_id is None:
            name = type(self).__name__
            raise CelerisError(f"A {name} layout needs the ids of its tokenizer; take layout.bind(tokenizer).")
        length, asked = self.block_length, self.asked(ids)
        real = (ids != pad_id).sum(1)
        wanted = real - asked
        blocks = max(int(wanted.max()) + length - 1, length) // length
        place = torch.arange(blocks * length)
        canvas = F.pad(ids, (0, blocks * length), value=pad_id).gather(1, asked[:, None] + place)
        ended = ids.gather(1, (real - 1).clamp_min(0)[:, None]) == self.eos_id
        full = -(-wanted // length) * length
        canvas[(place >= wanted[:, None]) & (place < full[:, None]) & ended] = self.eos_id
        canvas = canvas.unflatten(1, (blocks, length))
        start = asked[:, None] + torch.arange(0, blocks * length, length)
        end = int(start.max()) + length  # the context stream reaches as far, so that both decoders can be trained on it
        context = F.pad(ids, (0, max(end - ids.shape[1], 0)), value=pad_id)[:, : max(end, int(real.max()))]
        given = torch.zeros(canvas.shape, dtype=torch.bool)
        if self.p_drop > 0 or self.p_given > 0:
            for row, k in enumerate(index.tolist()):
                rng = generator(seed, "layout", k)
                if float(torch.rand((), generator=rng)) < self.p_drop:
                    start[row] = 0
                given[row] = torch.stack([given_spans(block, self.p_given, rng, pad_id) for block in canvas[row]])
        ragged = bool((canvas == pad_id).any())
        largest = (-(-ids.shape[1] // length), length)
        return Batch(context.contiguous(), canvas, start, given, index, self.p_given > 0, ragged, asked, largest)

    def asked(self, ids: Int[Tensor, "B L"]) -> Int[Tensor, "B"]:
        """How many tokens of each row are only read."""
        if self.assistant_id is None:
            return torch.zeros(len(ids), dtype=torch.long)
        return torch.where(ids == self.assistant_id, torch.arange(ids.shape[1]) + 1, 0).amax(1)


@dataclass(frozen=True)
class Responses(Documents):
    """As `Documents`, for rows of pairs: the blocks begin right behind the row's last assistant token.

    The prompt is read and earns no loss (`Batch.asked`). A row without that token is plain text, cut from its
    beginning.
    """

    def bind(self, tokenizer: TextTokenizer) -> "Responses":
        """The same layout for rows of `tokenizer`. Raises CelerisError if it has no roles."""
        return replace(self, assistant_id=tokenizer.role_id("assistant"), eos_id=tokenizer.eos_id)


def given_spans(block: Int[Tensor, "C"], p_given: float, rng: torch.Generator, pad_id: int) -> Bool[Tensor, "C"]:
    """With probability `p_given` one to three random spans of the block, else none.

    2k uniform cut points bound k spans, which cover k / (2k + 1) of the block on average. PAD is never given, and a
    block is never given whole: at least one token is left to learn.
    """
    none = torch.zeros(block.shape, dtype=torch.bool)
    if float(torch.rand((), generator=rng)) >= p_given:
        return none
    spans = int(torch.randint(1, MOST_SPANS + 1, (), generator=rng))
    cuts = torch.randint(0, len(block) + 1, (2 * spans,), generator=rng).sort().values
    inside = torch.searchsorted(cuts, torch.arange(len(block)), right=True) % 2 == 1
    real = block != pad_id
    given = inside & real
    return none if bool(given[real].all()) else given
