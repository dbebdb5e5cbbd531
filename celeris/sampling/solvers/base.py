"""What a solver is, and the one formula that most of them share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from celeris.noise import Schedule, alpha_sigma
from celeris.typing import Gamma, Latent


@runtime_checkable
class Stepper(Protocol):
    """A solver at work on one block; whatever it remembers of earlier calls belongs to that block."""

    def step(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None = None) -> Latent:
        """z after one denoiser call.

        Args:
            z, x0_hat: (B, C, D) what the denoiser was shown and what it said.
            gamma_t, gamma_s: (C,) levels z stands at before and after; equal where a position stands still.
            noise: (B, C, D), for a solver that needs it.
        """
        ...

    def rows(self, keep: Tensor) -> "Stepper":
        """The stepper of the rows `keep`, where the others have ended early."""
        ...


class Solver(ABC):
    """Settings of a solver. `begin` gives the stepper of one block.

    Attributes:
        needs_noise: `step` takes fresh noise.
    """

    needs_noise: bool = False

    def path(self, times: Sequence[float]) -> list[float]:
        """Canvas times z stands at: one before each denoiser call and one after the last.

        Args:
            times: of a grid, from 1 down to 0.
        """
        return list(times)

    @abstractmethod
    def begin(self, schedule: Schedule, steps: int, device: torch.device) -> Stepper:
        """Start a block of `steps` steps."""


class OneStep(Solver):
    """A solver that remembers nothing: one denoiser call, one move. A new one needs only `move`."""

    def begin(self, schedule: Schedule, steps: int, device: torch.device) -> Stepper:
        return self

    def step(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None = None) -> Latent:
        """As `Stepper.step`; a position whose level does not change keeps its z."""
        return keep_still(z, self.move(z, x0_hat, gamma_t, gamma_s, noise), gamma_t, gamma_s)

    def rows(self, keep: Tensor) -> Stepper:
        return self

    @abstractmethod
    def move(self, z: Latent, x0_hat: Latent, gamma_t: Gamma, gamma_s: Gamma, noise: Tensor | None) -> Latent:
        """z at gamma_s ≤ gamma_t."""


def keep_still(z: Latent, moved: Latent, gamma_t: Gamma, gamma_s: Gamma) -> Latent:
    """`moved`, but `z` where the level does not change."""
    return torch.where((gamma_t == gamma_s)[..., None], z, moved)


def mix_noise(
    z: Latent,
    x0_hat: Latent,
    gamma_t: Gamma,
    gamma_s: Gamma,
    old: Tensor | float,
    fresh: Tensor | float = 0.0,
    noise: Tensor | None = None,
) -> Latent:
    """z_s = alpha_s·x0_hat + sigma_s·(old·eps_hat + fresh·noise), eps_hat = (z − alpha_t·x0_hat)/sigma_t.

    With old² + fresh² = 1 an exact x0_hat gives z_s the distribution of the forward process (2010.02502, eq. 7).

    Args:
        old, fresh: shares of the noise z holds and of new noise; numbers or (C,) float64.
    """
    now, then = alpha_sigma(gamma_t.double()), alpha_sigma(gamma_s.double())
    kept = old * then.sigma / now.sigma
    out = coefficient(then.alpha - kept * now.alpha, z) * x0_hat + coefficient(kept, z) * z
    return out if noise is None else out + coefficient(fresh * then.sigma, z) * noise


def coefficient(value: Tensor, z: Tensor) -> Tensor:
    """A per-position factor in the precision of z: (C,) → (C, 1)."""
    return value.to(z.dtype)[..., None]
