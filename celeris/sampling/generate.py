"""Block-by-block generation: denoise a canvas, commit it to the context, go on."""

import time
from collections.abc import Callable, Sequence

import torch

from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.noise.path import fitting_stagger
from celeris.sampling.output import GenerateOutput, StepEnd
from celeris.sampling.request import prepare
from celeris.sampling.scheduler import Scheduler, draw
from celeris.sampling.solvers import DDIM


@torch.no_grad()
def generate(
    model: DiffusionLM,
    prompts: Sequence[str],
    *,
    num_samples: int = 1,
    max_new_tokens: int = 128,
    num_inference_steps: int = 16,
    block_length: int | None = None,
    temperature: float = 1.0,
    stagger: float | None = None,
    solver: DDIM | None = None,
    seed: int = 0,
    callback_on_step_end: Callable[[StepEnd], None] | None = None,
) -> GenerateOutput:
    """Continue `prompts` by diffusion.

    Args:
        model: with its tokenizer, in eval mode.
        prompts: texts; "" writes from nothing.
        num_samples: continuations per prompt.
        max_new_tokens: any number ≥ 1; the last block is trimmed to it.
        num_inference_steps: denoiser calls per block.
        block_length: C; the model's own when None.
        temperature: of the rounding distribution.
        stagger: how far apart positions start; when None the model's own, or less where steps are too few for it.
        solver: DDIM(eta=0) when None.
        seed: row k of the batch equals row 0 of a run with seed + k.
        callback_on_step_end: sees every step; it must not change what it is given.

    Raises:
        CelerisError: a value out of range, or a prompt that does not fit the window.
    """
    began = time.perf_counter()
    length = model.block_length if block_length is None else block_length
    if not 1 <= length <= model.max_length:
        raise CelerisError(f"block_length is {length}; it must lie in 1 … {model.max_length}, the model's window.")
    if stagger is None:
        stagger = fitting_stagger(model.stagger, num_inference_steps)
    scheduler = Scheduler(model, solver, temperature, stagger)
    scheduler.set_timesteps(num_inference_steps)
    request = prepare(model, prompts, num_samples, max_new_tokens, seed)
    rows = list(range(len(request.prompts)))
    sequences: list[list[int]] = [[] for _ in rows]
    reasons, nfe = ["length"] * len(rows), [0] * len(rows)
    passes = [int(request.ids.shape[1] > 0)] * len(rows)
    context = model.encode_context(request.ids, request.lengths)
    prefill = time.perf_counter() - began
    block = 0
    while rows:
        generators = [request.generators[row] for row in rows]
        z = draw(torch.Size((len(rows), length, model.embedding.dim)), model.device, torch.float32, generators)
        carried, out = None, None
        for step, t in enumerate(scheduler.timesteps.tolist()):
            out = model.denoise(z, t, context, carried, scheduler.stagger)
            if step + 1 < num_inference_steps:
                z, carried = scheduler.step(out, t, z, generators)
            if callback_on_step_end is not None:
                written = [list(sequences[row]) for row in rows]
                callback_on_step_end(StepEnd(block, step, num_inference_steps, t, rows, out.logits, written))
        assert out is not None
        ids = model.round(out)
        going = []
        for place, (row, tokens) in enumerate(zip(rows, ids.tolist(), strict=True)):
            nfe[row] += num_inference_steps
            tokens = tokens[: max_new_tokens - len(sequences[row])]
            if model.eos_id in tokens:
                tokens = tokens[: tokens.index(model.eos_id)]
                reasons[row] = "stop"
            elif len(sequences[row]) + len(tokens) < max_new_tokens:
                going.append(place)
            sequences[row] += tokens
        if going:
            if len(going) < len(rows):
                keep = torch.tensor(going, device=model.device)
                context, ids, rows = context.rows(keep), ids[keep], [rows[place] for place in going]
            context = model.encode_context(ids, past=context)
            for row in rows:
                passes[row] += 1
        else:
            rows = []
        block += 1
    return GenerateOutput(
        prompts=request.prompts,
        texts=[request.tokenizer.decode(tokens) for tokens in sequences],
        sequences=sequences,
        finish_reasons=reasons,
        nfe=nfe,
        context_passes=passes,
        seconds=time.perf_counter() - began,
        prefill_seconds=prefill,
    )
