"""Nucleus truncation of the rounding distribution."""

from collections.abc import Callable
from typing import Any

import torch

from celeris.errors import CelerisError
from celeris.rounding import Denoised
from celeris.sampling.guidance.base import Call, Guidance


class TopP(Guidance):
    """Keep the fewest tokens that together reach the probability p (1904.09751); the others get −inf.

    x̂0 is then the mean embedding of those tokens, also where a head predicts a vector. The nucleus is that of the
    model's own distribution, at temperature 1; the scheduler's temperature acts on what is left.

    Args:
        p: in (0, 1]; 1 changes nothing. The most probable token is always kept.
    """

    def __init__(self, p: float) -> None:
        if not 0 < p <= 1:
            raise CelerisError(f"top_p is {p:g}; it must lie in 0 < p ≤ 1 (1: all tokens).")
        self.p = p

    def __call__(self, inner: Callable[[Call], Denoised], call: Call, model: Any) -> Denoised:
        answer = inner(call)
        if self.p == 1:
            return answer
        ordered, place = torch.softmax(answer.logits.float(), -1).sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered
        # The first stays even where rounding puts a little mass before it.
        cut = before >= self.p
        cut[..., 0] = False
        return Denoised(answer.logits.masked_fill(torch.zeros_like(cut).scatter(-1, place, cut), float("-inf")))
