"""The sampling loop's bookkeeping in the form diffusers users know: `set_timesteps`, `timesteps`, `step`."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.rounding import Denoised
from celeris.sampling.solvers import DDIM
from celeris.typing import Gamma, Latent

Generators = torch.Generator | Sequence[torch.Generator] | None


@runtime_checkable
class Scheduled(Protocol):
    """What the scheduler reads of a model (`DiffusionLM`, or an exact posterior in a test)."""

    stagger: float
    embedding: Any

    def gamma_at(self, t: Tensor | float, block_length: int, stagger: float | None = None) -> Gamma: ...

    def x0_hat(self, out: Denoised, temperature: float = 1.0) -> Latent: ...


class SchedulerOutput(NamedTuple):
    """`prev_sample`: z at the next timestep; `pred_x0`: the x0_hat it was made with (the next self_cond)."""

    prev_sample: Latent
    pred_x0: Latent


class Scheduler:
    """Canvas times evenly spaced in [0, 1]: quantiles of the fitted schedule, so each step gains the same information.

    `timesteps` are the times the denoiser is called at: 1, 1 − 1/n, …, 1/n. The tokens are the argmax of the last
    call's logits; no call is spent at t = 0, where nothing is left to decide.

    Args:
        model: whose schedule, stagger and table are used.
        solver: `step(z, x0_hat, gamma_t, gamma_s, noise)`.
        temperature: of the rounding distribution; 0 takes the most probable token.
        stagger: overrides the model's own.
    """

    def __init__(
        self, model: Scheduled, solver: DDIM | None = None, temperature: float = 1.0, stagger: float | None = None
    ) -> None:
        if temperature < 0:
            raise CelerisError(f"temperature is {temperature:g}; it must be ≥ 0 (0: always the most probable token).")
        self.model, self.solver, self.temperature = model, solver or DDIM(), temperature
        self.stagger = model.stagger if stagger is None else stagger
        self.timesteps = torch.empty(0, dtype=torch.float64)

    def set_timesteps(self, num_inference_steps: int) -> None:
        """Choose the number of denoiser calls per block."""
        if num_inference_steps < 1:
            raise CelerisError(f"num_inference_steps is {num_inference_steps}; it must be at least 1.")
        self.timesteps = 1 - torch.arange(num_inference_steps, dtype=torch.float64) / num_inference_steps

    def step(self, out: Denoised, t: Tensor | float, z: Latent, generator: Generators = None) -> SchedulerOutput:
        """One solver step from t to the next timestep (0 after the last).

        Args:
            out: of `model.denoise(z, t, …)`.
            t: one of `timesteps`.
            z: (B, C, D).
            generator: one for the batch, or one a row (then a row's noise does not depend on its neighbours).
        """
        now = float(t)
        later = max(now - 1 / len(self.timesteps), 0.0)
        gamma_t, gamma_s = (self.model.gamma_at(x, z.shape[1], self.stagger) for x in (now, later))
        noise = draw(z.shape, z.device, z.dtype, generator) if self.solver.needs_noise else None
        x0_hat = self.model.x0_hat(out, self.temperature).to(z.dtype)
        return SchedulerOutput(self.solver.step(z, x0_hat, gamma_t, gamma_s, noise), x0_hat)


def draw(shape: torch.Size, device: torch.device, dtype: torch.dtype, generator: Generators) -> Tensor:
    """Standard normal noise; with one generator a row, row k comes from generator k alone."""
    if generator is None or isinstance(generator, torch.Generator):
        return torch.randn(shape, device=device, dtype=dtype, generator=generator)
    return torch.stack([torch.randn(shape[1:], device=device, dtype=dtype, generator=g) for g in generator])
