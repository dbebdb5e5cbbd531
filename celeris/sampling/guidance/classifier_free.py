"""Classifier-free guidance towards the context."""

from collections.abc import Callable
from typing import Any

import torch

from celeris.errors import CelerisError
from celeris.rounding import Denoised
from celeris.sampling.guidance.base import Call, Guidance, extrapolate


class ClassifierFreeGuidance(Guidance):
    """logits = empty + scale·(logits − empty), `empty` from a second call that sees no context (2207.12598, eq. 6).

    In eps or x0 the paper extrapolates the score; on logits it is the same for the token distribution:
    p(v | context)^scale · p(v)^(1 − scale). Rows without context are left as they are, and where no row has any there
    is no second call. What stands before the block is all context: the prompt, and the blocks already written.

    Args:
        scale: ≥ 0; 1 changes nothing and makes no second call, 0 ignores the context.
    """

    def __init__(self, scale: float) -> None:
        if scale < 0:
            raise CelerisError(f"guidance_scale is {scale:g}; it must be ≥ 0 (1: no guidance, 1.5 … 3 are usual).")
        self.scale = scale

    def __call__(self, inner: Callable[[Call], Denoised], call: Call, model: Any) -> Denoised:
        answer = inner(call)
        if self.scale == 1 or call.context is None or not (call.context.lengths > 0).any():
            return answer
        empty = inner(call._replace(context=model.denoiser.empty(len(call.z), call.z.device)))
        guided = extrapolate(answer, empty, self.scale)
        read = (call.context.lengths > 0)[:, None, None]
        vector = None
        if guided.vector is not None and answer.vector is not None:
            vector = torch.where(read, guided.vector, answer.vector)
        return Denoised(torch.where(read, guided.logits, answer.logits), vector)
