"""The second decoder of the same checkpoint: one token at a time from the next-token head, with the same cache."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.sampling.device import synchronize
from celeris.sampling.output import GenerateOutput, Piece
from celeris.sampling.request import Prompt, check_least, prepare
from celeris.sampling.row_text import RowText
from celeris.sampling.stop_strings import check_stops
from celeris.typing import Logits


def gumbel(uniform: Tensor) -> Tensor:
    """−log(−log u) in float64: float32 cuts the tail near 16.6 and lowers the effective temperature (2409.02908)."""
    return -torch.log(-torch.log(uniform.double()))


@torch.no_grad()
def generate_autoregressive(
    model: DiffusionLM,
    prompts: Sequence[Prompt],
    *,
    num_samples: int = 1,
    max_new_tokens: int = 128,
    min_new_tokens: int = 0,
    stop: str | Sequence[str] = (),
    temperature: float = 1.0,
    seed: int = 0,
    callback_on_piece: Callable[[Piece], None] | None = None,
) -> GenerateOutput:
    """Continue `prompts` token by token; arguments and seeds as in `generate`, a token being a block.

    An empty prompt starts from the end-of-text token, which is what stands in front of every document.
    """
    if temperature < 0:
        raise CelerisError(f"temperature is {temperature:g}; it must be ≥ 0 (0: always the most probable token).")
    began = time.perf_counter()
    request = prepare(model, prompts, num_samples, max_new_tokens, seed)
    check_least(min_new_tokens, max_new_tokens)
    stops = check_stops(stop)
    ids, lengths = request.ids, request.lengths
    if int(lengths.min()) == 0:
        if ids.shape[1] == 0:
            ids = torch.full((len(ids), 1), model.eos_id, device=model.device)
        ids[lengths == 0, 0] = model.eos_id
        lengths = lengths.clamp_min(1)
    context = model.encode_context(ids, lengths)
    logits = model.following_logits(context)
    synchronize(model.device)  # once a call: what is queued is not yet done
    prefill, first_token = time.perf_counter() - began, None
    rows = [RowText(request.tokenizer, max_new_tokens, model.eos_id, stops) for _ in ids]
    # Decoding a row's text after each token costs more than the token; without a reader it can wait for the end.
    at_once = bool(stops) or callback_on_piece is not None
    waiting: list[list[int]] = [[] for _ in rows]
    # The first token follows from the prefill; the last is read into the context only if something was asked after it.
    passes = [0] * len(rows)
    for position in range(max_new_tokens):
        if position < min_new_tokens:
            logits[:, model.eos_id] = float("-inf")
        token = _sample(logits, temperature, request.generators)
        for row, value in enumerate(token.tolist()):
            if rows[row].reason is not None:
                continue
            passes[row] += 1
            waiting[row].append(value)
            if at_once or value == model.eos_id or position + 1 == max_new_tokens:
                piece = rows[row].add(waiting[row])
                waiting[row] = []
                if callback_on_piece is not None:
                    callback_on_piece(Piece(row, position, piece, rows[row].reason))
        if first_token is None:  # it has been read, so the device has finished
            first_token = time.perf_counter() - began
        if all(row.reason is not None for row in rows):
            break
        context = model.encode_context(token[:, None], past=context)
        logits = model.following_logits(context)
    return GenerateOutput(
        prompts=request.prompts,
        texts=[row.text for row in rows],
        sequences=[row.tokens for row in rows],
        finish_reasons=[row.reason or "length" for row in rows],
        nfe=[0] * len(rows),
        context_passes=passes,
        seconds=time.perf_counter() - began,
        prefill_seconds=prefill,
        first_block_seconds=first_token,
        stops=[row.stop for row in rows],
    )


def _sample(logits: Logits, temperature: float, generators: Sequence[torch.Generator]) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    uniform = torch.stack(
        [torch.rand(logits.shape[-1], dtype=torch.float64, device=logits.device, generator=g) for g in generators]
    )
    return (logits.double() / temperature + gumbel(uniform)).argmax(-1)
