"""The iterator over committed blocks that every diffusion text comes out of."""

import time
from collections.abc import Iterator, Sequence

import torch

from celeris.denoiser import Context
from celeris.model import DiffusionLM
from celeris.sampling.canvas import CanvasWriter, Restricted
from celeris.sampling.device import synchronize
from celeris.sampling.output import GenerateOutput, Piece
from celeris.sampling.overflow import Overflow
from celeris.sampling.request import Request, padded
from celeris.sampling.row_text import RowText


class Pieces(Iterator[Piece]):
    """Writes while it is iterated over: one `Piece` per row and committed block, in the order of blocks, then rows.

    A reader who leaves off early has paid for no further block.

    Args:
        model: what writes.
        writer: denoises a canvas.
        request: the prompts.
        overflow: how much of a row stays when the window is full.
        max_new_tokens, min_new_tokens, stops: where a row ends, and where it may not.
        began: when the call began, on the clock of time.perf_counter.
    """

    def __init__(
        self,
        model: DiffusionLM,
        writer: CanvasWriter,
        request: Request,
        overflow: Overflow,
        max_new_tokens: int,
        min_new_tokens: int,
        stops: Sequence[str],
        began: float,
    ) -> None:
        self.model, self.writer, self.request, self.overflow = model, writer, request, overflow
        self.limit, self.least, self.began = max_new_tokens, min_new_tokens, began
        count = len(request.encoded)
        self.rows = [RowText(request.tokenizer, max_new_tokens, model.eos_id, stops) for _ in range(count)]
        self.nfe, self.passes, self.slid = [0] * count, [0] * count, [0] * count
        self.first = [0] * count  # tokens of prompt and text that have slid out of each row's context
        self.prefill, self.block_seconds = 0.0, list[float]()
        self.seconds = 0.0
        self._pieces = self._write()

    def __next__(self) -> Piece:
        return next(self._pieces)

    @property
    def output(self) -> GenerateOutput:
        """All that has been written so far; of a row that has not ended, what has been handed out of its text."""
        return GenerateOutput(
            prompts=self.request.prompts,
            texts=[row.text for row in self.rows],
            sequences=[row.tokens for row in self.rows],
            finish_reasons=[row.reason or "length" for row in self.rows],
            nfe=self.nfe,
            context_passes=self.passes,
            seconds=self.seconds,
            prefill_seconds=self.prefill,
            first_block_seconds=self.block_seconds[0] if self.block_seconds else None,
            block_seconds=self.block_seconds,
            stops=[row.stop for row in self.rows],
            slid=self.slid,
        )

    @torch.no_grad()
    def _write(self) -> Iterator[Piece]:
        model = self.model
        rows = list(range(len(self.rows)))
        context = self._prefill(rows)
        synchronize(model.device)  # once a call: what is queued is not yet done
        self.prefill = time.perf_counter() - self.began
        block = 0
        while rows:
            generators = [self.request.generators[row] for row in rows]
            committed = [self.rows[row].tokens for row in rows]
            ids, calls = self.writer.write(block, rows, context, generators, committed, self._restricted(block))
            pieces, going = [], []
            for place, (row, tokens) in enumerate(zip(rows, ids.tolist(), strict=True)):
                self.nfe[row] += calls[place]
                text = self.rows[row].add(tokens)
                reason = self.rows[row].reason
                pieces.append(Piece(row, block, text, reason))
                if reason is None:
                    going.append(place)
            # The ids have been read, so the device has finished the block.
            self.seconds = time.perf_counter() - self.began
            self.block_seconds.append(self.seconds)
            yield from pieces
            if going and len(going) < len(rows):
                keep = torch.tensor(going, device=model.device)
                context, ids = context.rows(keep), ids[keep]
            rows = [rows[place] for place in going]
            if rows:
                context = self._commit(rows, context, ids)
            block += 1

    def _restricted(self, block: int) -> Restricted | None:
        """EOS is not allowed before `min_new_tokens`. All rows have written the same number of tokens."""
        written, length = block * self.writer.length, self.writer.length
        if written >= self.least:
            return None
        place = torch.arange(written, written + length, device=self.model.device)
        return Restricted(self.model, (place < self.least)[None])

    def _prefill(self, rows: list[int]) -> Context:
        for row in rows:
            self.passes[row] = int(self.request.ids.shape[1] > 0)
        if any([self._slides(row) for row in rows]):
            return self._reread(rows)
        return self.model.encode_context(self.request.ids, self.request.lengths)

    def _commit(self, rows: list[int], context: Context, ids: torch.Tensor) -> Context:
        """The context of `rows` with the block `ids` in it, or of what is left of it after sliding."""
        for row in rows:
            self.passes[row] += 1
        # Every row is asked, so that each slides at its own time whatever its neighbours do.
        if any([self._slides(row) for row in rows]):
            return self._reread(rows)
        return self.model.encode_context(ids, past=context)

    def _slides(self, row: int) -> bool:
        """Whether the next block does not fit behind the row's context; then the row forgets all but its end."""
        tokens, window, block = self._tokens(row), self.model.max_length, self.writer.length
        room = min(block, self.limit - len(self.rows[row].tokens))
        if len(tokens) + room <= window:
            return False
        self.first[row] += len(tokens) - self.overflow.keep(block, window)
        self.slid[row] += 1
        return True

    def _reread(self, rows: list[int]) -> Context:
        ids, lengths = padded([self._tokens(row) for row in rows], self.model.pad_id, self.model.device)
        return self.model.encode_context(ids, lengths)

    def _tokens(self, row: int) -> list[int]:
        """What the row's context holds."""
        prompt, written = self.request.encoded[row], self.rows[row].tokens
        first = self.first[row]
        return prompt[first:] + written[max(first - len(prompt), 0) :]
