"""One canvas out of noise: the loop over the denoiser's calls, and what may be held fast in it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.denoiser import Context
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.rounding import Denoised
from celeris.sampling.adaptive import Unchanged
from celeris.sampling.grids import Grid
from celeris.sampling.guidance import Guidance, Guided
from celeris.sampling.output import StepEnd
from celeris.sampling.scheduler import Scheduler, draw
from celeris.sampling.solvers import Solver
from celeris.typing import Ids, Latent, Mask

OnStep = Callable[[StepEnd], None]


class Restricted:
    """The model on a canvas whose positions are not all free; a denoiser like the model itself.

    Args:
        model: what is asked.
        no_eos: (B or 1, C) positions where EOS is not allowed.
        ids, given: (B, C) tokens, and where they are given: noise-free there, and what every call says. None: nowhere.
    """

    def __init__(self, model: DiffusionLM, no_eos: Mask, ids: Ids | None = None, given: Mask | None = None) -> None:
        self.model, self.no_eos, self.ids, self.given = model, no_eos, ids, given

    def denoise(
        self,
        z: Latent,
        t: Tensor | float,
        context: Context | None = None,
        self_cond: Latent | None = None,
        stagger: float | None = None,
    ) -> Denoised:
        """As `DiffusionLM.denoise`."""
        model = self.model
        if self.given is None or self.ids is None:
            out = model.denoise(z, t, context, self_cond, stagger)
        else:
            context = context or model.denoiser.empty(z.shape[0], z.device)
            z = torch.where(self.given[..., None], model.embedding(self.ids).to(z.dtype), z)
            gamma = model.gamma_at(t, z.shape[1], stagger).to(z.dtype).expand(z.shape[:2])
            carried = None if self_cond is None else self_cond[:, None]
            start, given = context.lengths[:, None], self.given[:, None]
            whole = model.predict(z[:, None], gamma[:, None], context, start, carried, given)
            out = Denoised(whole.logits[:, 0], None if whole.vector is None else whole.vector[:, 0])
        cut = F.pad(
            self.no_eos[..., None], (model.eos_id, model.vocab_size - model.eos_id - 1)
        )  # (B or 1, C, V), true at EOS
        logits = out.logits.masked_fill(cut, float("-inf"))
        if self.given is None or self.ids is None:
            return Denoised(logits, out.vector)
        token = F.one_hot(self.ids, model.vocab_size).bool() | ~self.given[..., None]
        return Denoised(logits.masked_fill(~token, float("-inf")), out.vector)

    def keep_rows(self, keep: Tensor) -> None:
        """Go on with the rows `keep`."""
        if len(self.no_eos) > 1:
            self.no_eos = self.no_eos[keep]
        if self.given is not None and self.ids is not None:
            self.ids, self.given = self.ids[keep], self.given[keep]


class Written(NamedTuple):
    """Tokens (B, C) of a canvas, and how many denoiser calls each row took part in."""

    ids: Ids
    calls: list[int]


class CanvasWriter:
    """Denoises one canvas after another with the same settings; arguments as in `generate`.

    Raises:
        CelerisError: a value out of range.
    """

    def __init__(
        self,
        model: DiffusionLM,
        length: int,
        num_inference_steps: int | None = None,
        temperature: float = 1.0,
        stagger: float | None = None,
        solver: Solver | None = None,
        grid: Grid | None = None,
        guidance: Sequence[Guidance] = (),
        adaptive: Unchanged | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        if not 1 <= length <= model.max_length:
            raise CelerisError(f"block_length is {length}; it must lie in 1 … {model.max_length}, the model's window.")
        self.model, self.length, self.guidance, self.adaptive, self.on_step = model, length, guidance, adaptive, on_step
        self.scheduler = Scheduler(model, solver, temperature, stagger, grid)
        self.scheduler.set_timesteps(length if num_inference_steps is None else num_inference_steps)
        if stagger is None:
            self.scheduler.fit_stagger()
        if adaptive is not None and (temperature > 0 or self.scheduler.solver.needs_noise):
            raise CelerisError(
                "Adaptive stopping would change what is written at "
                + (f"temperature {temperature:g}" if temperature > 0 else "a solver with fresh noise (eta > 0)")
                + "; use temperature=0 and eta=0, or adaptive=null."
            )

    def write(
        self,
        block: int,
        rows: list[int],
        context: Context,
        generators: Sequence[torch.Generator],
        committed: Sequence[list[int]],
        restricted: Restricted | None = None,
    ) -> Written:
        """Tokens of one canvas for each of `rows`.

        Args:
            block: number of the canvas, for the callback.
            rows: their numbers in the request.
            context: what each of them has before it.
            generators: one a row.
            committed: token ids of each row so far, for the callback.
            restricted: what is not free in this canvas.
        """
        model, scheduler, on_step = self.model, self.scheduler, self.on_step
        shape = torch.Size((len(rows), self.length, model.embedding.dim))
        z = draw(shape, model.device, torch.float32, generators)
        carried, denoiser = None, Guided(model, self.guidance, restricted)
        watch = None if self.adaptive is None else self.adaptive.begin()
        settled: list[tuple[int, Ids]] = []
        places, calls, steps = list(range(len(rows))), [0] * len(rows), len(scheduler.timesteps)
        for step, t in enumerate(scheduler.timesteps.tolist()):
            out = denoiser.denoise(z, t, context, carried, scheduler.stagger)
            if step + 1 < steps:
                z, carried = scheduler.step(out, t, z, generators)
            if on_step is not None:
                written = [list(committed[place]) for place in places]
                on_step(StepEnd(block, step, steps, t, [rows[place] for place in places], out.logits, written))
            if watch is None or carried is None or step + 1 == steps:
                continue
            ids = model.round(out)
            done = watch.settled(ids, out.logits).tolist()
            if not any(done):
                continue
            for n, place in enumerate(places):
                if done[n]:
                    calls[place] = denoiser.calls
                    settled.append((place, ids[n]))
            going = [n for n in range(len(places)) if not done[n]]
            places, generators = [places[n] for n in going], [generators[n] for n in going]
            if not places:
                break
            keep = torch.tensor(going, device=model.device)
            z, carried, context = z[keep], carried[keep], context.rows(keep)
            scheduler.keep_rows(keep)
            watch.keep_rows(keep)
            if restricted is not None:
                restricted.keep_rows(keep)
        for place in places:
            calls[place] = denoiser.calls
        if not settled:
            return Written(model.round(out), calls)
        last = zip(places, model.round(out), strict=True) if places else ()
        by_place = dict([*settled, *last])
        return Written(torch.stack([by_place[place] for place in range(len(rows))]), calls)
