"""Text of the masked-diffusion baseline: positions are decided one after another, in random order."""

import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from celeris.baselines.masked import MaskedLM
from celeris.errors import CelerisError
from celeris.sampling.autoregressive import gumbel
from celeris.sampling.output import GenerateOutput
from celeris.sampling.request import Request, prepare
from celeris.typing import Ids, Logits


@torch.no_grad()
def generate_masked(
    model: MaskedLM,
    prompts: Sequence[str],
    *,
    num_samples: int = 1,
    max_new_tokens: int = 128,
    num_inference_steps: int | None = None,
    temperature: float = 1.0,
    seed: int = 0,
) -> GenerateOutput:
    """Continue `prompts` by ancestral sampling (2406.07524); arguments and seeds as in `celeris.sampling.generate`.

    A step from time t to s decides each masked position with probability (t − s)/t, so with n equal steps the step that
    decides a position is uniform on 1 … n, independent of everything else, and is drawn beforehand. A step that decides
    nothing in a row needs no call for it: `nfe` counts the calls each row took part in.

    Args:
        num_inference_steps: steps over the whole canvas; as many as `max_new_tokens` when None.
        temperature: of the token distribution; Gumbel noise is float64 (2409.02908).
    """
    steps = max_new_tokens if num_inference_steps is None else num_inference_steps
    if steps < 1:
        raise CelerisError(f"num_inference_steps is {steps}; at least 1 is needed.")
    if temperature < 0:
        raise CelerisError(f"temperature is {temperature:g}; it must be ≥ 0 (0: always the most probable token).")
    began = time.perf_counter()
    request = prepare(model, prompts, num_samples, max_new_tokens, seed)
    canvas, when = _canvas(model, request, max_new_tokens, steps)
    nfe = _fill(model, canvas, when, steps, temperature, request.generators)
    sequences, reasons = [], []
    for row, first in zip(canvas.tolist(), request.lengths.tolist(), strict=True):
        tokens = row[first : first + max_new_tokens]
        stopped = model.eos_id in tokens
        sequences.append(tokens[: tokens.index(model.eos_id)] if stopped else tokens)
        reasons.append("stop" if stopped else "length")
    seconds = time.perf_counter() - began
    return GenerateOutput(
        prompts=request.prompts,
        texts=[request.tokenizer.decode(tokens) for tokens in sequences],
        sequences=sequences,
        finish_reasons=reasons,
        nfe=nfe,
        context_passes=[0] * len(sequences),
        seconds=seconds,
        prefill_seconds=0.0,
        first_block_seconds=seconds,  # nothing is certain to stay before the last step
    )


def _canvas(model: MaskedLM, request: Request, new: int, steps: int) -> tuple[Ids, Ids]:
    """Prompts with `new` MASKs behind each, right-padded, and the step that decides each position (−1: known)."""
    canvas = F.pad(request.ids, (0, new), value=model.pad_id)
    when = torch.full_like(canvas, -1)
    for row, (first, own) in enumerate(zip(request.lengths.tolist(), request.generators, strict=True)):
        uniform = torch.rand(new, dtype=torch.float64, generator=own, device=canvas.device)
        canvas[row, first : first + new] = model.mask_id
        when[row, first : first + new] = (uniform * steps).long()
    return canvas, when


def _fill(
    model: MaskedLM, canvas: Ids, when: Ids, steps: int, temperature: float, generators: Sequence[torch.Generator]
) -> list[int]:
    """Decide every position of `canvas` in place; calls each row took."""
    real = canvas != model.pad_id
    padded = not bool(real.all())
    nfe = [0] * len(canvas)
    for step in torch.unique(when[when >= 0]).tolist():
        now = when == step
        rows = now.any(1).nonzero()[:, 0]
        hidden = model.hidden(canvas[rows], real[rows] if padded else None)
        logits = model.read(hidden[now[rows]])
        counts = now[rows].sum(1).tolist()
        chosen = [generators[row] for row in rows.tolist()]
        canvas[now] = _sample(logits, temperature, counts, chosen)
        for row in rows.tolist():
            nfe[row] += 1
    return nfe


def _sample(logits: Logits, temperature: float, counts: Sequence[int], generators: Sequence[torch.Generator]) -> Ids:
    """(n, V) → (n,); the first counts[0] of them draw from the first generator, and so on."""
    if temperature == 0:
        return logits.argmax(-1)
    size = logits.shape[-1]
    uniform = torch.cat(
        [
            torch.rand(count, size, dtype=torch.float64, device=logits.device, generator=own)
            for count, own in zip(counts, generators, strict=True)
        ]
    )
    return (logits.double() / temperature + gumbel(uniform)).argmax(-1)
