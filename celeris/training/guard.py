"""Gradient clipping, and the guard that keeps a non-finite step away from the weights."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from celeris.errors import CelerisError
from celeris.training.sharding import full


class GradientGuard:
    """Clips the gradient by its global norm and decides whether the step may happen.

    One flag per optimizer step, all-reduced so that every rank decides alike. Reading it is the only host–device
    synchronisation of the training loop: the decision must precede the update.

    Args:
        max_norm: largest global L2 norm of the gradient.
        skip_budget: non-finite steps that may be skipped in the whole run; one more stops the run. 0 stops at once.
    """

    def __init__(self, max_norm: float = 1.0, skip_budget: int = 0) -> None:
        if not max_norm > 0 or skip_budget < 0:
            raise CelerisError(
                f"GradientGuard(max_norm={max_norm}, skip_budget={skip_budget}) is out of range: max_norm must be "
                "positive (use .inf for no clipping) and skip_budget at least 0."
            )
        self.max_norm, self.skip_budget = max_norm, skip_budget
        self.skipped = 0
        self.last_norm: Tensor | None = None

    def clip_and_check(self, parameter_sets: Sequence[Sequence[nn.Parameter]], loss: Tensor, step: int) -> bool:
        """Clip in place; True if the step may be taken.

        Args:
            parameter_sets: each set is clipped by its own norm, so that a schedule's fit, whose loss has another
                scale, neither drowns the network's gradient nor is drowned by it. On refusal all gradients become
                None, which every optimizer leaves alone.
            loss: scalar of this rank.
            step: 0-based, for the message.

        Raises:
            CelerisError: the step is not finite and the budget is used up. Weights and averages are untouched.
        """
        sets = [[p for p in parameters if p.grad is not None] for parameters in parameter_sets]
        grads = [[p.grad for p in members if p.grad is not None] for members in sets]
        norms = [full(torch.nn.utils.get_total_norm(found)) for found in grads]  # of all shards together
        finite = torch.isfinite(loss)
        for norm in norms:
            finite = finite & torch.isfinite(norm.to(loss.device))
        bad = 1.0 - finite.float()
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        self.last_norm = norms[0]
        if not bool(bad):
            for members, norm in zip(sets, norms, strict=True):
                torch.nn.utils.clip_grads_with_norm_(members, self.max_norm, norm)
            return True
        for members in sets:
            for p in members:
                p.grad = None
        self.skipped += 1
        if self.skipped > self.skip_budget:
            raise CelerisError(
                f"The loss or gradient of step {step + 1} is not finite (loss {float(loss):g}, gradient norm "
                f"{float(norms[0]):g}) and {self.skip_budget} such steps may be skipped; the weights are still those "
                "of the step before. Lower the learning rate, use precision 32-true, or raise guard.skip_budget."
            )
        return False

    def state_dict(self) -> dict[str, Any]:
        return {"skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.skipped = state["skipped"]
