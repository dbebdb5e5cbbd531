"""Wrappers round a denoiser: what is asked of it for one solver call, and what is made of the answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from celeris.rounding import Denoised
from celeris.typing import Latent


class Call(NamedTuple):
    """One question to the denoiser: the arguments of `DiffusionLM.denoise`."""

    z: Latent
    t: Tensor | float
    context: Any = None
    self_cond: Latent | None = None
    stagger: float | None = None


@runtime_checkable
class Denoiser(Protocol):
    """`DiffusionLM`, `Guided`, or an exact posterior in a test."""

    def denoise(
        self,
        z: Latent,
        t: Tensor | float,
        context: Any = None,
        self_cond: Latent | None = None,
        stagger: float | None = None,
    ) -> Denoised: ...


class Guidance(ABC):
    """One wrapper. It may ask `inner` several times, or change what it is asked, or what it answers."""

    @abstractmethod
    def __call__(self, inner: Callable[[Call], Denoised], call: Call, model: Any) -> Denoised:
        """The answer to `call`; `model` is the `DiffusionLM` at the bottom."""


class Guided:
    """A model inside wrappers, itself a denoiser.

    Args:
        model: the denoiser at the bottom.
        guidance: wrappers, the innermost first.
        bottom: what answers in the model's place (`celeris.sampling.canvas.Restricted`); the model itself when None.

    Attributes:
        calls: how often the model was called.
    """

    def __init__(self, model: Denoiser, guidance: Sequence[Guidance] = (), bottom: Denoiser | None = None) -> None:
        self.model, self.bottom, self.calls = model, model if bottom is None else bottom, 0
        self._answer: Callable[[Call], Denoised] = self._ask
        for wrapper in guidance:
            self._answer = partial(wrapper, self._answer, model=model)

    def denoise(
        self,
        z: Latent,
        t: Tensor | float,
        context: Any = None,
        self_cond: Latent | None = None,
        stagger: float | None = None,
    ) -> Denoised:
        """As `DiffusionLM.denoise`."""
        return self._answer(Call(z, t, context, self_cond, stagger))

    def _ask(self, call: Call) -> Denoised:
        self.calls += 1
        return self.bottom.denoise(*call)


def extrapolate(with_it: Denoised, without: Denoised, scale: float) -> Denoised:
    """without + scale·(with − without), on logits and on a head's vector.

    A token that either side has cut (log-probability −inf, see `TopP`) keeps what `with_it` says.
    """
    moved = without.logits + scale * (with_it.logits - without.logits)
    cut = torch.isinf(with_it.logits) | torch.isinf(without.logits)
    logits = torch.where(cut, with_it.logits, moved)
    if with_it.vector is None or without.vector is None:
        return Denoised(logits)
    return Denoised(logits, without.vector + scale * (with_it.vector - without.vector))
