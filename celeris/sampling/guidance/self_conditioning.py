"""Guidance towards the model's own earlier estimate."""

from collections.abc import Callable
from typing import Any

from celeris.errors import CelerisError
from celeris.rounding import Denoised
from celeris.sampling.guidance.base import Call, Guidance, extrapolate


class SelfConditioningGuidance(Guidance):
    """logits = without + scale·(with − without), `without` from a second call without self-conditioning.

    ELF (2605.10938) trains a network to give this combination in one call; here it is made of two. The first call of a
    block has no estimate yet and is not doubled.

    Args:
        scale: ≥ 0; 1 changes nothing and makes no second call, 0 never self-conditions.

    Raises:
        CelerisError: the model takes no self-conditioning.
    """

    def __init__(self, scale: float) -> None:
        if scale < 0:
            raise CelerisError(f"self_cond_guidance is {scale:g}; it must be ≥ 0 (1: no guidance, 2 … 3 are usual).")
        self.scale = scale

    def __call__(self, inner: Callable[[Call], Denoised], call: Call, model: Any) -> Denoised:
        if not model.self_conditioning:
            raise CelerisError(
                f"self_cond_guidance is {self.scale:g} and this checkpoint takes no self-conditioning; set it to 1, or "
                "train with model.self_conditioning=true."
            )
        answer = inner(call)
        if self.scale == 1 or call.self_cond is None:
            return answer
        return extrapolate(answer, inner(call._replace(self_cond=None)), self.scale)
