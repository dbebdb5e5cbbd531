"""The clamping trick of Diffusion-LM."""

from collections.abc import Callable
from typing import Any

import torch

from celeris.errors import CelerisError
from celeris.noise.path import canvas_levels
from celeris.rounding import Denoised, pick
from celeris.sampling.guidance.base import Call, Guidance


class Clamp(Guidance):
    """x̂0 is the embedding of the most probable token (2205.14217, section 4.3) at positions close to the data.

    Args:
        below: positions whose own schedule time is at most this are clamped, in (0, 1]; 1 clamps every call.
    """

    def __init__(self, below: float) -> None:
        if not 0 < below <= 1:
            raise CelerisError(f"clamp_below is {below:g}; it must lie in 0 < t ≤ 1, or be null for no clamping.")
        self.below = below

    def __call__(self, inner: Callable[[Call], Denoised], call: Call, model: Any) -> Denoised:
        answer = inner(call)
        clock = torch.as_tensor(call.t, dtype=torch.float64, device=call.z.device)
        stagger = model.stagger if call.stagger is None else call.stagger
        near = (canvas_levels(clock, call.z.shape[-2], stagger).u <= self.below)[..., None]
        best = pick(answer.logits)[..., None]
        only = torch.full_like(answer.logits, float("-inf")).scatter(-1, best, answer.logits.gather(-1, best))
        logits = torch.where(near, only, answer.logits)
        if answer.vector is None:
            return Denoised(logits)
        clamped = torch.nn.functional.embedding(best[..., 0], model.embedding.table.to(answer.vector))
        return Denoised(logits, torch.where(near, clamped, answer.vector))
