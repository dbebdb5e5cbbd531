"""Stopping a block's denoising early, row by row."""

import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.typing import Ids, Logits


class Unchanged:
    """A row's block is done when its rounded tokens have been the same for `steps` calls and are certain.

    Both must hold: at high noise tokens can stand still for a while because nothing is known yet. It is a heuristic for
    temperature 0 and a solver without fresh noise, where the steps that are left seldom change a block that is certain
    of itself, though nothing forbids it; elsewhere they still choose, and `generate` refuses it.

    Args:
        steps: calls in a row that round to the same tokens, at least 2.
        entropy: nats; the mean over the positions of the entropy of their rounding distribution must be below it.
    """

    def __init__(self, steps: int = 3, entropy: float = 0.01) -> None:
        if steps < 2:
            raise CelerisError(f"steps is {steps}; tokens cannot have stayed the same for less than 2 calls.")
        if entropy <= 0:
            raise CelerisError(f"entropy is {entropy:g} nats; it must be > 0 (0.01: all but certain).")
        self.steps, self.entropy = steps, entropy

    def begin(self) -> "Watch":
        """Start a block."""
        return Watch(self.steps, self.entropy)


class Watch:
    """What has been seen of one block."""

    def __init__(self, steps: int, entropy: float) -> None:
        self.steps, self.entropy = steps, entropy
        self.last: Ids | None = None
        self.same: Tensor | None = None

    def settled(self, ids: Ids, logits: Logits) -> Tensor:
        """(B,) bool: which rows are done, after a call that said `logits` (B, C, V) and rounds to `ids` (B, C)."""
        if self.last is None or self.same is None:
            self.same = torch.ones(len(ids), dtype=torch.long, device=ids.device)
        else:
            self.same = torch.where((ids == self.last).all(1), self.same + 1, 1)
        self.last = ids
        return (self.same >= self.steps) & (mean_entropy(logits) < self.entropy)

    def keep_rows(self, keep: Tensor) -> None:
        """Go on with the rows `keep`."""
        assert self.last is not None and self.same is not None
        self.last, self.same = self.last[keep], self.same[keep]


def mean_entropy(logits: Logits) -> Tensor:
    """(B, C, V) → (B,) nats, mean over the C positions."""
    log_p = torch.log_softmax(logits.float(), -1)
    return -torch.where(log_p > -100, log_p.exp() * log_p, 0.0).sum(-1).mean(-1)
