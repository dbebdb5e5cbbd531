"""The layout for filling in: rows of text with blanks, all that stands around them given."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from celeris.batch import Batch
from celeris.data.layouts import MOST_SPANS
from celeris.errors import CelerisError
from celeris.streams import generator
from celeris.tokenizer import TextTokenizer
from celeris.typing import Int


@dataclass(frozen=True)
class Blanks:
    """Text with blanks to fill in: what is before the first one is context, all the rest one canvas (N = 1).

    The tokens between the blanks are given. A blank may have more positions than what belongs there: its surplus is EOS
    and earns loss, so that EOS comes to mean "the blank ends here", as it ends a block of `Responses`, and a shorter
    filling can be chosen. A row's own EOS is no part of its canvas, which ends where the text does.

    2k uniform cut points bound k blanks, which cover k / (2k + 1) of a row on average.

    Attributes:
        most: blanks a row has at most; their number k is uniform in 1 … most.
        p_edge: probability that the first blank begins the text, and as much that the last one ends it.
        surplus: positions that a blank may have too many.
        p_surplus: probability that a blank has too many; how many is uniform in 1 … surplus, as far as the row's own
            length has room.
        eos_id: of the tokenizer (`bind`).
    """

    most: int = MOST_SPANS
    p_edge: float = 0.15
    surplus: int = 16
    p_surplus: float = 0.5
    eos_id: int | None = None

    def __post_init__(self) -> None:
        if self.most < 1 or self.surplus < 0:
            raise CelerisError(f"Blanks needs most ≥ 1 and surplus ≥ 0, not most={self.most}, surplus={self.surplus}.")

    def bind(self, tokenizer: TextTokenizer) -> "Blanks":
        """The same layout for rows of `tokenizer`."""
        return replace(self, eos_id=tokenizer.eos_id)

    def __call__(self, ids: Int[Tensor, "B L"], index: Int[Tensor, "B"], *, seed: int, pad_id: int) -> Batch:
        if self.eos_id is None:
            raise CelerisError("A Blanks layout needs the id of its tokenizer's EOS; take layout.bind(tokenizer).")
        real = (ids != pad_id).sum(1)
        starts, canvases, givens = [], [], []
        for row, n, k in zip(ids, real.tolist(), index.tolist(), strict=True):
            text = row[: n - 1] if n and row[n - 1] == self.eos_id else row[:n]
            start, canvas, given = self._canvas(text, ids.shape[1], self.eos_id, generator(seed, "layout", k))
            starts.append(start)
            canvases.append(canvas)
            givens.append(given)
        canvas = pad_sequence(canvases, batch_first=True, padding_value=pad_id)[:, None]
        given = pad_sequence(givens, batch_first=True)[:, None]
        # The context stream reaches as far as in `Responses`, and for the same reason.
        end = max(start + len(part) for start, part in zip(starts, canvases, strict=True))
        context = F.pad(ids, (0, max(end - ids.shape[1], 0)), value=pad_id)[:, : max(end, int(real.max()))]
        ragged = bool((canvas == pad_id).any())
        where, largest = torch.tensor(starts).unsqueeze(1), (1, ids.shape[1])
        return Batch(context.contiguous(), canvas, where, given, index, True, ragged, largest=largest)

    def _canvas(self, text: Tensor, length: int, eos_id: int, rng: torch.Generator) -> tuple[int, Tensor, Tensor]:
        """Where the canvas of one row begins, its tokens, and which of them are given."""
        blanks = int(torch.randint(1, self.most + 1, (), generator=rng))
        cuts = torch.randint(0, len(text) + 1, (2 * blanks,), generator=rng).sort().values.tolist()
        first, last, *chosen = torch.rand(2 + blanks, generator=rng).tolist()
        extra = torch.randint(1, max(self.surplus, 1) + 1, (blanks,), generator=rng).tolist()
        cuts[0] = 0 if first < self.p_edge else cuts[0]
        cuts[-1] = len(text) if last < self.p_edge else cuts[-1]
        holes, room = [], length - len(text)
        for begin, end, n, p in zip(cuts[::2], cuts[1::2], extra, chosen, strict=True):
            spare = min(n, room) if self.surplus and p < self.p_surplus else 0
            room -= spare
            if end > begin or spare:
                holes.append((begin, end, spare))
        holes = holes or [(0, len(text), int(len(text) == 0))]  # something must be left to learn
        pieces, given = [], []
        for (begin, end, spare), until in zip(holes, [*(hole[0] for hole in holes[1:]), len(text)], strict=True):
            pieces += [text[begin:end], text.new_full((spare,), eos_id), text[end:until]]
            given += [False] * (end - begin + spare) + [True] * (until - end)
        return holes[0][0], torch.cat(pieces), torch.tensor(given, dtype=torch.bool)
