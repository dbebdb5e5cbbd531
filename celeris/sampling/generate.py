"""Block-by-block generation: denoise a canvas, commit it to the context, go on."""

import time
from collections.abc import Callable, Sequence

import torch

from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.sampling.device import synchronize
from celeris.sampling.grids import Grid
from celeris.sampling.guidance import Guidance, Guided, standard_guidance
from celeris.sampling.output import GenerateOutput, StepEnd
from celeris.sampling.request import prepare
from celeris.sampling.scheduler import Scheduler, draw
from celeris.sampling.solvers import Solver


@torch.no_grad()
def generate(
    model: DiffusionLM,
    prompts: Sequence[str],
    *,
    num_samples: int = 1,
    max_new_tokens: int = 128,
    num_inference_steps: int | None = None,
    block_length: int | None = None,
    temperature: float = 1.0,
    stagger: float | None = None,
    solver: Solver | None = None,
    grid: Grid | None = None,
    guidance_scale: float = 1.0,
    self_cond_guidance: float = 1.0,
    top_p: float = 1.0,
    clamp_below: float | None = None,
    guidance: Sequence[Guidance] = (),
    seed: int = 0,
    callback_on_step_end: Callable[[StepEnd], None] | None = None,
) -> GenerateOutput:
    """Continue `prompts` by diffusion.

    Args:
        model: with its tokenizer, in eval mode.
        prompts: texts; "" writes from nothing.
        num_samples: continuations per prompt.
        max_new_tokens: any number ≥ 1; the last block is trimmed to it.
        num_inference_steps: solver steps per block; as many as it has tokens when None. A step is one denoiser call;
            `Heun` makes 2n − 1 of n steps, and guidance asks again. `out.nfe` counts what was called.
        block_length: C; the model's own when None.
        temperature: of the rounding distribution.
        stagger: how far apart positions start; when None the model's own, or less where steps are too few for it.
        solver: DDIM(eta=0) when None.
        grid: times of the calls; quantiles of the schedule when None.
        guidance_scale: of classifier-free guidance towards prompt and earlier blocks; 1: off.
        self_cond_guidance: the same for self-conditioning; 1: off.
        top_p: probability kept of the rounding distribution; 1: all.
        clamp_below: schedule time from which x0_hat is the nearest token's embedding; None: never.
        guidance: further wrappers, outside those above; the first is the inner one.
        seed: row k of the batch equals row 0 of a run with seed + k.
        callback_on_step_end: sees every step; it must not change what it is given.

    Raises:
        CelerisError: a value out of range, or a prompt that does not fit the window.
    """
    began = time.perf_counter()
    length = model.block_length if block_length is None else block_length
    if not 1 <= length <= model.max_length:
        raise CelerisError(f"block_length is {length}; it must lie in 1 … {model.max_length}, the model's window.")
    scheduler = Scheduler(model, solver, temperature, stagger, grid)
    scheduler.set_timesteps(length if num_inference_steps is None else num_inference_steps)
    if stagger is None:
        scheduler.fit_stagger()
    calls = len(scheduler.timesteps)
    wrappers = [*standard_guidance(guidance_scale, self_cond_guidance, top_p, clamp_below), *guidance]
    request = prepare(model, prompts, num_samples, max_new_tokens, seed)
    rows = list(range(len(request.prompts)))
    sequences: list[list[int]] = [[] for _ in rows]
    reasons, nfe = ["length"] * len(rows), [0] * len(rows)
    passes = [int(request.ids.shape[1] > 0)] * len(rows)
    context = model.encode_context(request.ids, request.lengths)
    synchronize(model.device)  # once a call: what is queued is not yet done
    prefill, first_block = time.perf_counter() - began, None
    block = 0
    while rows:
        generators = [request.generators[row] for row in rows]
        z = draw(torch.Size((len(rows), length, model.embedding.dim)), model.device, torch.float32, generators)
        carried, out, denoiser = None, None, Guided(model, wrappers)
        for step, t in enumerate(scheduler.timesteps.tolist()):
            out = denoiser.denoise(z, t, context, carried, scheduler.stagger)
            if step + 1 < calls:
                z, carried = scheduler.step(out, t, z, generators)
            if callback_on_step_end is not None:
                written = [list(sequences[row]) for row in rows]
                callback_on_step_end(StepEnd(block, step, calls, t, rows, out.logits, written))
        assert out is not None
        ids = model.round(out)
        going = []
        for place, (row, tokens) in enumerate(zip(rows, ids.tolist(), strict=True)):
            nfe[row] += denoiser.calls
            tokens = tokens[: max_new_tokens - len(sequences[row])]
            if model.eos_id in tokens:
                tokens = tokens[: tokens.index(model.eos_id)]
                reasons[row] = "stop"
            elif len(sequences[row]) + len(tokens) < max_new_tokens:
                going.append(place)
            sequences[row] += tokens
        if first_block is None:  # the ids have been read, so the device has finished the block
            first_block = time.perf_counter() - began
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
        first_block_seconds=first_block,
    )
