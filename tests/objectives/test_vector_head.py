"""A head that predicts x0, eps or v."""

import pytest
import torch

from celeris.noise import alpha_sigma
from celeris.noise.prediction import X0, Eps, V
from celeris.rounding import VectorHead

PREDICTIONS = {"x0": X0(), "eps": Eps(), "v": V()}
each = pytest.mark.parametrize("prediction", PREDICTIONS.values(), ids=PREDICTIONS.keys())


def some(dtype=torch.float32):
    rng = torch.Generator().manual_seed(0)
    hidden, z = torch.randn(5, 16, generator=rng), torch.randn(5, 4, generator=rng)
    table = torch.nn.functional.normalize(torch.randn(9, 4, generator=rng), dim=-1) * 2
    return hidden.to(dtype), z, torch.linspace(-8, 14, 5), table


@each
def test_untrained_it_is_the_linear_denoiser(prediction):
    """alpha·z, the posterior mean of unit-variance Gaussian data."""
    hidden, z, gamma, table = some()
    out = VectorHead(16, 9, 4, prediction).denoised(hidden, z, gamma, table)
    assert torch.allclose(out.vector, alpha_sigma(gamma).alpha[:, None] * z, atol=2e-4)
    assert torch.allclose(out.logits, out.vector @ table.T, atol=1e-5)


@each
def test_its_output_is_the_prediction(prediction):
    """A head whose read-out gives the right number for its prediction says exactly x0."""
    hidden, z, gamma, table = some()
    x0 = table[:5]
    head = VectorHead(16, 9, 4, prediction)
    linear = prediction.from_x0(alpha_sigma(gamma).alpha[:, None] * z, z, gamma)
    target = prediction.from_x0(x0, z, gamma)
    head.read = lambda hidden: target - linear
    out = head.denoised(hidden, z, gamma, table)
    assert torch.allclose(out.vector, x0, atol=5e-3)
    assert torch.equal(out.logits.argmax(-1), torch.arange(5))


@each
def test_forbidden_tokens_and_both_streams(prediction):
    hidden, z, gamma, table = some()
    head = VectorHead(16, 9, 4, prediction)
    torch.nn.init.normal_(head.project.weight)
    head.forbid([0])
    context = head(hidden, table)
    assert torch.allclose(context, head.read(hidden) @ table.T + head.prior)
    for logits in (context, head.denoised(hidden, z, gamma, table).logits):
        assert (logits[:, 0] < -1e8).all() and logits.shape == (5, 9)


@each
@pytest.mark.parametrize("gamma", [-14.0, 20.0])
def test_finite_at_the_ends_under_autocast(prediction, gamma):
    hidden, z, _, table = some(torch.bfloat16)
    head = VectorHead(16, 9, 4, prediction)
    with torch.autocast("cpu", torch.bfloat16):
        out = head.denoised(hidden, z, torch.full((5,), gamma), table)
    assert out.vector.dtype == out.logits.dtype == torch.float32
    out.logits.logsumexp(-1).sum().backward()
    assert torch.isfinite(out.logits).all() and torch.isfinite(head.project.weight.grad).all()
