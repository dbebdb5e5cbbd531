"""Learning rate as a pure function of the step: nothing to save, nothing to restore."""

from dataclasses import dataclass

from celeris.errors import CelerisError


@dataclass(frozen=True)
class WarmupStableDecay:
    """Linear warm-up, constant middle, linear decay at the end (WSD; MiniCPM 2404.06395, section 4).

    Args:
        warmup_steps: steps until the full learning rate.
        decay_fraction: share of the run, at its end, over which the rate falls; 0 never decays.
        final: multiplier reached at the last step.
    """

    warmup_steps: int = 100
    decay_fraction: float = 0.2
    final: float = 0.0

    def __post_init__(self) -> None:
        if self.warmup_steps < 0 or not 0 <= self.decay_fraction <= 1 or not 0 <= self.final <= 1:
            raise CelerisError(
                f"WarmupStableDecay(warmup_steps={self.warmup_steps}, decay_fraction={self.decay_fraction}, "
                f"final={self.final}) is out of range: warmup_steps >= 0, decay_fraction and final within [0, 1]."
            )

    def __call__(self, step: int, max_steps: int) -> float:
        """Multiplier of the base learning rate for the update number `step` (0-based) of `max_steps`."""
        warmup = min(1.0, (step + 1) / (self.warmup_steps + 1))
        length = self.decay_fraction * max_steps
        if length == 0:
            return warmup
        # The last update (step = max_steps − 1) still moves: its multiplier is one decay step above `final`.
        left = min(1.0, max(0.0, (max_steps - step) / length))
        return min(warmup, self.final + (1 - self.final) * left)
