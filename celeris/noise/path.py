"""How the positions of one canvas travel through the noise levels together.

A canvas has one clock t; position k stands at its own level u_k(t). With `stagger` s = 0 all positions move at once.
With s > 0 they start one after another, left before right: position k of C leaves the noise when
t = 1 − (s/(1+s))·k/(C−1) and is clean 1/(1+s) later. Each u_k is a schedule's own time, so this is still Gaussian
diffusion with one increasing schedule per coordinate, and the variational bound holds along it unchanged (the
idea of per-position levels: Rolling Diffusion 2402.09470, Diffusion Forcing 2407.01392).
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Levels(NamedTuple):
    """Per-position schedule time `u` (…, C) and its speed du/dt."""

    u: Tensor
    speed: Tensor


def fitting_stagger(stagger: float, num_inference_steps: float) -> float:
    """`stagger`, or the largest that still gives every position a denoiser call inside its own transit.

    A transit takes 1/(1+s) of the clock and calls are 1/n apart. Where a transit fell between two calls, a position
    would go from noise to clean on a mean embedding nobody looked at again, and rare tokens, EOS among them, would
    come out of it. A transit of at least 4/3 of a step avoids that: s ≤ 3n/4 − 1.
    """
    return min(stagger, max(0.75 * num_inference_steps - 1, 0.0))


def canvas_levels(t: Tensor, block_length: int, stagger: Tensor | float, widths: Tensor | None = None) -> Levels:
    """Levels of the C positions at canvas time t.

    Args:
        t: (…) canvas time in [0, 1].
        block_length: C.
        stagger: s ≥ 0, a number or a tensor shaped like `t`.
        widths: positions of a canvas that are not padding, shaped like `t`; they share the clock out among them, and
            the padding goes with the last one. None: all C.

    Returns:
        u (…, C) in [0, 1] and du/dt (…, C), which is 0 where a position waits or has arrived.
    """
    width = torch.full_like(t, block_length) if widths is None else widths.to(t.dtype)
    place = torch.arange(block_length, device=t.device, dtype=t.dtype) / (width[..., None] - 1).clamp_min(1)
    s = torch.as_tensor(stagger, device=t.device, dtype=t.dtype)[..., None]
    s = torch.where(width[..., None] > 1, s, 0.0)  # a single position has nothing to wait for
    raw = t[..., None] * (1 + s) - s * (1 - place.clamp_max(1))
    moving = (raw >= 0) & (raw <= 1)
    return Levels(raw.clamp(0, 1), torch.where(moving, 1 + s, torch.zeros_like(raw)))
