from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from celeris.training.ema import EMA
from celeris.training.module import compile_denoiser

from .tiny import MemoryText, fit, plain_descent, tiny_model, tiny_module


def predict(model):
    model.eval()
    ids = MemoryText().val.ids
    batch = MemoryText().layout(ids, torch.arange(len(ids)), seed=0, pad_id=0)
    with torch.no_grad():
        context = model.encode_context(batch.context)
        z = torch.randn(*batch.canvas.shape, model.embedding.dim, generator=torch.Generator().manual_seed(0))
        return model.predict(z, torch.ones(batch.canvas.shape), context, batch.start)


def test_compiling_captures_both_streams_and_renames_nothing(monkeypatch):
    """Graphs are counted: some ways of compiling a module silently capture none."""
    torch._dynamo.reset()
    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    eager, compiled = tiny_model(), tiny_model()
    names = list(compiled.state_dict())
    compile_denoiser(compiled.denoiser)
    torch.testing.assert_close(predict(compiled), predict(eager))
    assert counter.frame_count >= 2 and counter.op_count > 40
    assert list(compiled.state_dict()) == names
    tiny_model().load_state_dict(compiled.state_dict())


def test_compiled_training_is_eager_training(tmp_path, monkeypatch):
    """Forward and backward through compiled graphs; the checkpoint is the same either way."""
    torch._dynamo.reset()
    eager = fit(tmp_path / "eager", plain_module(), max_steps=3)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compiled = fit(tmp_path / "compiled", plain_module(compile=True), max_steps=3)
    monkeypatch.undo()
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], value, atol=1e-5, rtol=1e-4, msg=name)
    fit(tmp_path / "eager", plain_module(), max_steps=4, ckpt=tmp_path / "compiled/checkpoints/last.ckpt")


def plain_module(**changes):
    return tiny_module(tiny_model(dropout=0.0), optimizer=plain_descent, **changes)


@pytest.mark.slow
def test_inductor_sees_swapped_weights():
    """Evaluation after a swap is that of the average, also through graphs compiled before the swap."""
    torch._dynamo.reset()
    model, other, ema = tiny_model(), tiny_model(), EMA(0.9)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    ema.update(other, 0)
    eager = predict(model), predict(other)
    compile_denoiser(model.denoiser)
    torch.testing.assert_close(predict(model), eager[0], atol=1e-4, rtol=1e-4)
    with ema.swapped(model):
        torch.testing.assert_close(predict(model), eager[1], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(predict(model), eager[0], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(*eager, atol=1e-2)
