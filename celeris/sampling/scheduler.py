"""The sampling loop's bookkeeping in the form diffusers users know: `set_timesteps`, `timesteps`, `step`."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.noise import Schedule
from celeris.noise.path import fitting_stagger
from celeris.rounding import Denoised
from celeris.sampling.grids import Grid, Quantiles, check_times
from celeris.sampling.solvers import DDIM, Solver, Stepper
from celeris.typing import Gamma, Latent

Generators = torch.Generator | Sequence[torch.Generator] | None


@runtime_checkable
class Scheduled(Protocol):
    """What the scheduler reads of a model (`DiffusionLM`, or an exact posterior in a test)."""

    stagger: float
    schedule: Schedule

    def gamma_at(self, t: Tensor | float, block_length: int, stagger: float | None = None) -> Gamma: ...

    def x0_hat(self, out: Denoised, temperature: float = 1.0) -> Latent: ...


class SchedulerOutput(NamedTuple):
    """`prev_sample`: z at the next timestep; `pred_x0`: the x0_hat it was made with (the next self_cond)."""

    prev_sample: Latent
    pred_x0: Latent


class Scheduler:
    """The times the denoiser is called at, and the solver's move after each call.

    `timesteps` lists the calls of one block, the first at t = 1. A solver that calls twice a step shows its times
    twice, as diffusers' Heun scheduler does. The tokens are the argmax of the last call's logits; no call is spent at
    t = 0, where nothing is left to decide. Calls are made in the order of `timesteps`; one with the first timestep
    begins a new block, and so forgets what a solver remembers of the last.

    Args:
        model: whose schedule, stagger and table are used.
        solver: DDIM(eta=0) when None.
        temperature: of the rounding distribution; 0 takes the most probable token.
        stagger: overrides the model's own.
        grid: quantiles of the schedule when None, so that each step gains the same information.
    """

    def __init__(
        self,
        model: Scheduled,
        solver: Solver | None = None,
        temperature: float = 1.0,
        stagger: float | None = None,
        grid: Grid | None = None,
    ) -> None:
        if temperature < 0:
            raise CelerisError(f"temperature is {temperature:g}; it must be ≥ 0 (0: always the most probable token).")
        self.model, self.temperature = model, temperature
        self.solver, self.grid = solver or DDIM(), grid or Quantiles()
        self.stagger = model.stagger if stagger is None else stagger
        self.timesteps = torch.empty(0, dtype=torch.float64)
        self._path: list[float] = []
        self._steps = self._call = 0
        self._stepper: Stepper | None = None

    def set_timesteps(self, num_inference_steps: int) -> None:
        """Choose the number of solver steps per block; `len(timesteps)` denoiser calls follow from it."""
        if num_inference_steps < 1:
            raise CelerisError(f"num_inference_steps is {num_inference_steps}; it must be at least 1.")
        device = self.model.gamma_at(1.0, 1, self.stagger).device
        times = self.grid.times(num_inference_steps, self.model.schedule, device).cpu()
        check_times(times, num_inference_steps, type(self.grid).__name__)
        self._path = self.solver.path(times.tolist())
        self._steps, self._call, self._stepper = num_inference_steps, 0, None
        self.timesteps = torch.tensor(self._path[:-1], dtype=torch.float64)

    def fit_stagger(self) -> None:
        """Lower the stagger where steps are too coarse for it (`celeris.noise.path.fitting_stagger`)."""
        longest = max(now - then for now, then in pairwise(self._path))
        self.stagger = fitting_stagger(self.stagger, round(1 / longest, 6))

    def step(self, out: Denoised, t: Tensor | float, z: Latent, generator: Generators = None) -> SchedulerOutput:
        """The solver's move after one denoiser call.

        Args:
            out: of `model.denoise(z, t, …)`.
            t: the next of `timesteps`, or the first for a new block.
            z: (B, C, D).
            generator: one for the batch, or one a row (then a row's noise does not depend on its neighbours).
        """
        now = float(t)
        if len(self.timesteps) and now == self._path[0]:
            self._call = 0
            self._stepper = self.solver.begin(self.model.schedule, self._steps, z.device)
        expected = self._path[self._call] if self._call < len(self.timesteps) else None
        if self._stepper is None or now != expected:
            raise CelerisError(
                f"step was called with t={now:g} where {'no call' if expected is None else f't={expected:g}'} is next; "
                "call set_timesteps first and go through `timesteps` in order."
            )
        later = self._path[self._call + 1]
        self._call += 1
        gamma_t, gamma_s = (self.model.gamma_at(x, z.shape[1], self.stagger) for x in (now, later))
        noise = draw(z.shape, z.device, z.dtype, generator) if self.solver.needs_noise else None
        x0_hat = self.model.x0_hat(out, self.temperature).to(z.dtype)
        return SchedulerOutput(self._stepper.step(z, x0_hat, gamma_t, gamma_s, noise), x0_hat)

    def keep_rows(self, keep: Tensor) -> None:
        """Go on with the rows `keep` of the block; the others have ended early."""
        if self._stepper is not None:
            self._stepper = self._stepper.rows(keep)


def draw(shape: torch.Size, device: torch.device, dtype: torch.dtype, generator: Generators) -> Tensor:
    """Standard normal noise; with one generator a row, row k comes from generator k alone."""
    if generator is None or isinstance(generator, torch.Generator):
        return torch.randn(shape, device=device, dtype=dtype, generator=generator)
    return torch.stack([torch.randn(shape[1:], device=device, dtype=dtype, generator=g) for g in generator])
