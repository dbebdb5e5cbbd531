"""Guidance: wrappers round a denoiser, composed in any order. One file each; a new one subclasses `Guidance`."""

from celeris.sampling.guidance.base import Call, Denoiser, Guidance, Guided, extrapolate
from celeris.sampling.guidance.clamp import Clamp
from celeris.sampling.guidance.classifier_free import ClassifierFreeGuidance
from celeris.sampling.guidance.self_conditioning import SelfConditioningGuidance
from celeris.sampling.guidance.top_p import TopP


def standard_guidance(
    guidance_scale: float = 1.0,
    self_cond_guidance: float = 1.0,
    top_p: float = 1.0,
    clamp_below: float | None = None,
) -> list[Guidance]:
    """The wrappers that these settings switch on, the innermost first: those that ask twice, then those that cut."""
    wanted: list[tuple[bool, Guidance]] = [
        (guidance_scale != 1, ClassifierFreeGuidance(guidance_scale)),
        (self_cond_guidance != 1, SelfConditioningGuidance(self_cond_guidance)),
        (top_p != 1, TopP(top_p)),
    ]
    if clamp_below is not None:
        wanted.append((True, Clamp(clamp_below)))
    return [wrapper for on, wrapper in wanted if on]


__all__ = [
    "Call",
    "Clamp",
    "ClassifierFreeGuidance",
    "Denoiser",
    "Guidance",
    "Guided",
    "SelfConditioningGuidance",
    "TopP",
    "extrapolate",
    "standard_guidance",
]
