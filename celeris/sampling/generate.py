"""Block-by-block generation: denoise a canvas, commit it to the context, go on."""

import time
from collections.abc import Callable, Sequence

from celeris.model import DiffusionLM
from celeris.sampling.adaptive import Unchanged
from celeris.sampling.canvas import CanvasWriter
from celeris.sampling.grids import Grid
from celeris.sampling.guidance import Guidance, standard_guidance
from celeris.sampling.output import GenerateOutput, Piece, StepEnd
from celeris.sampling.overflow import Overflow, Refuse
from celeris.sampling.pieces import Pieces
from celeris.sampling.request import Prompt, check_least, prepare
from celeris.sampling.solvers import Solver
from celeris.sampling.stop_strings import check_stops


def stream(
    model: DiffusionLM,
    prompts: Sequence[Prompt],
    *,
    num_samples: int = 1,
    max_new_tokens: int = 128,
    min_new_tokens: int = 0,
    stop: str | Sequence[str] = (),
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
    adaptive: Unchanged | None = None,
    context_overflow: Overflow | None = None,
    seed: int = 0,
    callback_on_step_end: Callable[[StepEnd], None] | None = None,
) -> Pieces:
    """The texts of `generate` piece by piece, each as soon as its block is committed; `.output` has the rest.

    Arguments and errors are those of `generate`. Errors come with the call, the writing with the iteration.
    """
    began = time.perf_counter()
    length = model.block_length if block_length is None else block_length
    wrappers = [*standard_guidance(guidance_scale, self_cond_guidance, top_p, clamp_below), *guidance]
    writer = CanvasWriter(
        model, length, num_inference_steps, temperature, stagger, solver, grid, wrappers, adaptive, callback_on_step_end
    )
    overflow = context_overflow or Refuse()
    request = prepare(model, prompts, num_samples, max_new_tokens, seed, overflow, length)
    check_least(min_new_tokens, max_new_tokens)
    return Pieces(model, writer, request, overflow, max_new_tokens, min_new_tokens, check_stops(stop), began)


def generate(
    model: DiffusionLM,
    prompts: Sequence[Prompt],
    *,
    num_samples: int = 1,
    max_new_tokens: int = 128,
    min_new_tokens: int = 0,
    stop: str | Sequence[str] = (),
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
    adaptive: Unchanged | None = None,
    context_overflow: Overflow | None = None,
    seed: int = 0,
    callback_on_step_end: Callable[[StepEnd], None] | None = None,
    callback_on_piece: Callable[[Piece], None] | None = None,
) -> GenerateOutput:
    """Continue `prompts` by diffusion.

    Args:
        model: with its tokenizer, in eval mode.
        prompts: texts, lists of token ids, or chats (lists of messages); "" writes from nothing. They may differ in
            length and kind. An EOS among the ids of a prompt is context, as between the documents of training rows.
        num_samples: continuations per prompt.
        max_new_tokens: any number ≥ 1; the last block is trimmed to it.
        min_new_tokens: EOS is not allowed before so many tokens. A stop string is.
        stop: strings that end a text and are no part of it.
        num_inference_steps: solver steps per block; as many as it has tokens when None. A step is one denoiser call;
            `Heun` makes 2n − 1 of n steps, and guidance asks again. `out.nfe` counts what was called.
        block_length: C; the model's own when None.
        temperature: of the rounding distribution; 0 with a solver without fresh noise leaves only the seed to chance.
        stagger: how far apart positions start; when None the model's own, or less where steps are too few for it.
        solver: DDIM(eta=0) when None.
        grid: times of the calls; quantiles of the schedule when None.
        guidance_scale: of classifier-free guidance towards prompt and earlier blocks; 1: off.
        self_cond_guidance: the same for self-conditioning; 1: off.
        top_p: probability kept of the rounding distribution; 1: all.
        clamp_below: schedule time from which x0_hat is the nearest token's embedding; None: never.
        guidance: further wrappers, outside those above; the first is the inner one.
        adaptive: ends a row's denoising early; None: never. At temperature 0 and a solver without fresh noise only.
        context_overflow: what happens when prompt and output exceed the window; `Refuse()`, an error, when None.
        seed: row k of the batch equals row 0 of a run with seed + k.
        callback_on_step_end: sees every step; it must not change what it is given.
        callback_on_piece: gets each piece of text as soon as its block is committed (`stream`).

    Raises:
        CelerisError: a value out of range, or a prompt that does not fit the window.
    """
    pieces = stream(
        model,
        prompts,
        num_samples=num_samples,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        stop=stop,
        num_inference_steps=num_inference_steps,
        block_length=block_length,
        temperature=temperature,
        stagger=stagger,
        solver=solver,
        grid=grid,
        guidance_scale=guidance_scale,
        self_cond_guidance=self_cond_guidance,
        top_p=top_p,
        clamp_below=clamp_below,
        guidance=guidance,
        adaptive=adaptive,
        context_overflow=context_overflow,
        seed=seed,
        callback_on_step_end=callback_on_step_end,
    )
    for piece in pieces:
        if callback_on_piece is not None:
            callback_on_piece(piece)
    return pieces.output
