"""The second decoder of the same checkpoint: one token at a time from the next-token head, with the same cache."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.sampling.device import synchronize
from celeris.sampling.output import GenerateOutput
from celeris.sampling.request import prepare
from celeris.typing import Logits


def gumbel(uniform: Tensor) -> Tensor:
    """−log(−log u) in float64: float32 cuts the tail near 16.6 and lowers the effective temperature (2409.02908)."""
    return -torch.log(-torch.log(uniform.double()))


@torch.no_grad()
def generate_autoregressive(
    model: DiffusionLM,
    prompts: Sequence[str],
    *,
    num_samples: int = 1,
    max_new_tokens: int = 128,
    temperature: float = 1.0,
    seed: int = 0,
) -> GenerateOutput:
    """Continue `prompts` token by token; arguments and seeds as in `generate`.

    An empty prompt starts from the end-of-text token, which is what stands in front of every document.
    """
    if temperature < 0:
        raise CelerisError(f"temperature is {temperature:g}; it must be ≥ 0 (0: always the most probable token).")
    began = time.perf_counter()
    request = prepare(model, prompts, num_samples, max_new_tokens, seed)
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
    rows = len(ids)
    sequences: list[list[int]] = [[] for _ in range(rows)]
    finished = [False] * rows
    for position in range(max_new_tokens):
        token = _sample(logits, temperature, request.generators)
        for row, value in enumerate(token.tolist()):
            finished[row] |= value == model.eos_id
            if not finished[row]:
                sequences[row].append(value)
        if first_token is None:  # it has been read, so the device has finished
            first_token = time.perf_counter() - began
        if all(finished) or position + 1 == max_new_tokens:
            break
        context = model.encode_context(token[:, None], past=context)
        logits = model.following_logits(context)
    return GenerateOutput(
        prompts=request.prompts,
        texts=[request.tokenizer.decode(tokens) for tokens in sequences],
        sequences=sequences,
        finish_reasons=["stop" if done else "length" for done in finished],
        nfe=[0] * rows,
        # The first token follows from the prefill; the last is read into the context only if EOS was asked after it.
        context_passes=[len(tokens) + done for tokens, done in zip(sequences, finished, strict=True)],
        seconds=time.perf_counter() - began,
        prefill_seconds=prefill,
        first_block_seconds=first_token,
    )


def _sample(logits: Logits, temperature: float, generators: Sequence[torch.Generator]) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    uniform = torch.stack(
        [torch.rand(logits.shape[-1], dtype=torch.float64, device=logits.device, generator=g) for g in generators]
    )
    return (logits.double() / temperature + gumbel(uniform)).argmax(-1)
