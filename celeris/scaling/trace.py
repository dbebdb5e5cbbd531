"""One training step of a real model, counted and not computed.

The model, the objective, the optimizer and the average are those of the run. Only the tensors are fake: they have a
shape and no memory, so a laptop counts the step of a model that fits on none of its disks.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import Variable
from torch.optim import Optimizer

from celeris.batch import Batch
from celeris.language_model import LanguageModel
from celeris.scaling.ledger import Ledger, Work
from celeris.scaling.mixed_precision import AsOnAGpu
from celeris.scaling.states import States, count_states


@dataclass(frozen=True)
class Trace:
    """What one micro-batch and one update cost on one device.

    Attributes:
        parameters: numbers that are trained or frozen.
        states: bytes kept between steps.
        forward, backward, update: how often each operation is done; not every time for the part of forward that is
            not learned from: `share`.
        share: of the rows that get the self-conditioning pass, which is counted for all.
        kept: bytes alive between forward and backward.
        peak: most bytes alive in forward and backward, without the gradients of the parameters.
        update_peak: most bytes that the update makes for itself, beside the states.
        logits: bytes of one float32 tensor of the canvas's logits; several of them are alive at the peak.
    """

    parameters: int
    states: States
    forward: Counter[Work]
    backward: Counter[Work]
    update: Counter[Work]
    share: float
    kept: float
    peak: float
    update_peak: float
    logits: float

    @property
    def forward_flops(self) -> float:
        """Of a micro-batch, on average."""
        return sum(n * one.flops * (1 if one.learned else self.share) for one, n in self.forward.items())

    @property
    def backward_flops(self) -> float:
        return sum(n * one.flops for one, n in self.backward.items())

    @property
    def flops(self) -> float:
        return self.forward_flops + self.backward_flops


def trace_step(
    model: LanguageModel,
    objective: nn.Module,
    build_optimizer: Callable[[LanguageModel], Optimizer],
    average: Callable[[nn.Module, int], None],
    averaged: Callable[[], Iterable[Tensor]],
    batch: Batch,
    mixed: bool = False,
    gathered: torch.dtype = torch.float32,
) -> Trace:
    """Count a step on `batch`.

    Args:
        model: real, or `fake_model`.
        objective, build_optimizer: of the run.
        average: called as average(model, step) after the update.
        averaged: the tensors of the average.
        batch: of the micro-batch's size; real.
        mixed: forward runs under bf16 autocast, counted as on a GPU.
        gathered: type of the layers' weights in forward and backward; the update is done on float32.
    """
    model.train()
    share = _reread_all(objective)
    optimizer = build_optimizer(model)
    _cast(model.layers, gathered)
    passes = Ledger()
    # A gradient is a state from the moment it is complete.
    hooks = [p.register_post_accumulate_grad_hook(lambda p: passes.release(p.grad)) for p in model.parameters()
             if p.requires_grad]  # fmt: skip
    with passes, AsOnAGpu():
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            output = objective(model, batch, 0)
        forward = passes.work.copy()
        gc.collect()  # what only cycles hold is not kept
        kept, passes.learning = passes.live, True
        _backward(output.loss)
    for hook in hooks:
        hook.remove()
    backward = passes.work - forward
    del output
    _cast(model.layers, torch.float32)
    optimizer.step()  # the first one makes the states
    average(model, 0)
    update = Ledger()
    update.learning = True
    with update:
        optimizer.step()
        average(model, 1)
    return Trace(
        sum(p.numel() for p in model.parameters()), count_states(model, model.layers, optimizer, averaged()), forward,
        backward, update.work, share, kept, passes.peak, update.peak,
        4 * model.vocab_size * batch.canvas.numel(),
    )  # fmt: skip


def _backward(loss: Tensor) -> None:
    """`loss.backward()`, which would leave the modes for functions at the door; layers that are computed again in it
    need theirs."""
    Variable._execution_engine.run_backward(
        (loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def _reread_all(objective: Any) -> float:
    """Have all rows get the self-conditioning pass, and say how many would."""
    parts = [part for part in objective.modules() if hasattr(part, "self_conditioning")]
    share = max((float(part.self_conditioning) for part in parts), default=1.0)
    for part in parts:
        part.self_conditioning = 1.0
    return share


def _cast(layers: Iterable[nn.Module], dtype: torch.dtype) -> None:
    """Parameters and gradients, in place; `Module.to` would swap fake tensors, which it cannot."""
    for layer in layers:
        for p in layer.parameters():
            gradient, p.grad = p.grad, None
            p.data = p.data.to(dtype)
            p.grad = None if gradient is None else gradient.to(dtype)


def fake_model(spec: dict[str, Any]) -> LanguageModel:
    """The model of a `_target_` record, of tensors that have no memory.

    What it is called with may be real: ids and levels are small, and some of them are looked at.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        return LanguageModel.from_spec(spec)


def plain_rows(rows: int, length: int, vocab_size: int, first: int) -> tuple[Tensor, Tensor]:
    """Ids (rows, length) of a text without special tokens, and the rows' numbers, from `first` on."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(min(8, vocab_size - 1), vocab_size, (rows, length), generator=generator)
    return ids, torch.arange(first, first + rows)
