"""Checks of compiled models, run by test_compile.py in a process of their own: the shape checks that the suite hooks
into every annotated function cannot be traced by the compiler.

    python -m tests.training.compiled <check> <folder>
"""

import sys
from functools import partial
from pathlib import Path

import torch
from torch._dynamo.testing import CompileCounter

from celeris.training.ema import EMA

from .tiny import MemoryText, fit, plain_descent, tiny_model, tiny_module


def predict(model):
    model.eval()
    ids = MemoryText().val.ids
    batch = MemoryText().layout(ids, torch.arange(len(ids)), seed=0, pad_id=0)
    with torch.no_grad():
        context = model.encode_context(batch.context)
        z = torch.randn(*batch.canvas.shape, model.embedding.dim, generator=torch.Generator().manual_seed(0))
        return model.predict(z, torch.ones(batch.canvas.shape), context, batch.start).logits


def captures(folder: Path) -> None:
    """Both streams become graphs (some ways of compiling a module silently capture none); names stay."""
    torch.compile, original = partial(torch.compile, backend=(counter := CompileCounter())), torch.compile
    eager, compiled = tiny_model(), tiny_model()
    names = list(compiled.state_dict())
    compiled.denoiser.compile()
    torch.compile = original
    torch.testing.assert_close(predict(compiled), predict(eager))
    assert counter.frame_count >= 2 and counter.op_count > 40, (counter.frame_count, counter.op_count)
    assert list(compiled.state_dict()) == names
    tiny_model().load_state_dict(compiled.state_dict())


def trains(folder: Path) -> None:
    """Forward and backward through compiled graphs; either kind of run continues the other's checkpoint."""

    def module(**changes):
        return tiny_module(tiny_model(dropout=0.0), optimizer=plain_descent, **changes)

    eager = fit(folder / "eager", module(), max_steps=3)
    torch.compile, original = partial(torch.compile, backend="aot_eager"), torch.compile
    compiled = fit(folder / "compiled", module(compile=True), max_steps=3)
    torch.compile = original
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], value, atol=1e-5, rtol=1e-4, msg=name)
    fit(folder / "eager", module(), max_steps=4, ckpt=folder / "compiled/checkpoints/last.ckpt")


def swaps(folder: Path) -> None:
    """Inductor: evaluation after a swap is that of the average, also through graphs compiled before the swap."""
    model, other, ema = tiny_model(), tiny_model(), EMA(0.9)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    ema.update(other, 0)
    eager = predict(model), predict(other)
    model.denoiser.compile()
    torch.testing.assert_close(predict(model), eager[0], atol=1e-4, rtol=1e-4)
    with ema.swapped(model):
        torch.testing.assert_close(predict(model), eager[1], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(predict(model), eager[0], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(*eager, atol=1e-2)


if __name__ == "__main__":
    {"captures": captures, "trains": trains, "swaps": swaps}[sys.argv[1]](Path(sys.argv[2]))
