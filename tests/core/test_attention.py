"""All back-ends compute the same attention, over every visibility the model uses."""

import math

import pytest
import torch

from celeris.denoiser.attention import Canvas, Causal, backend, dense, flash, flash_varlen, reference, sdpa
from celeris.errors import CelerisError


def varlen_by_hand(q, k, v, cu_q, cu_k, max_q, max_k, causal):
    """What flash-attn's variable-length kernel is documented to do, one sequence at a time."""
    out = torch.full_like(q, math.nan)
    for i in range(len(cu_q) - 1):
        qs, ks, vs = q[cu_q[i] : cu_q[i + 1]], k[cu_k[i] : cu_k[i + 1]], v[cu_k[i] : cu_k[i + 1]]
        assert len(qs) <= max_q and 0 < len(ks) <= max_k
        scores = torch.einsum("qhd,khd->hqk", qs, ks) / math.sqrt(q.shape[-1])
        if causal:  # aligned at the bottom right
            place = torch.arange(len(qs))[:, None] + len(ks) - len(qs)
            scores = scores.masked_fill(torch.arange(len(ks)) > place, -math.inf)
        out[cu_q[i] : cu_q[i + 1]] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), vs)
    return out


def tensors(queries: int, keys: int, rows: int = 3):
    rng = torch.Generator().manual_seed(queries * 1000 + keys)
    return [torch.randn(rows, 2, n, 8, generator=rng) for n in (queries, keys, keys)]


def visibilities():
    rows = 3
    for length in (1, 7, 128, 129):
        yield Causal(torch.arange(length).expand(rows, -1), length, fresh=True), length, length
    cached = torch.tensor([3, 0, 9])[:, None] + torch.arange(4)
    yield Causal(cached, 16, fresh=False), 4, 16
    start = torch.tensor([[0, 5, 10], [2, 7, 12], [0, 0, 0]])
    yield Canvas(start, None, 12, 5), 15, 27
    valid = torch.ones(rows, 3, 5, dtype=torch.bool)
    valid[0, 2, 3:] = False
    valid[1, 1] = False
    valid[2, 0, 1:] = False
    yield Canvas(start, valid, 12, 5), 15, 27
    yield Canvas(torch.zeros(rows, 1, dtype=torch.long), None, 0, 200), 200, 200


@pytest.mark.parametrize("case", list(visibilities()), ids=lambda c: type(c[0]).__name__ + f"-{c[1]}x{c[2]}")
def test_back_ends_agree(case):
    visible, queries, keys = case
    q, k, v = tensors(queries, keys)
    expected = reference(q, k, v, visible)
    assert torch.isfinite(expected).all()
    for other in (sdpa(q, k, v, visible), dense(q, k, v, visible), flash(q, k, v, visible, varlen_by_hand)):
        assert torch.allclose(other, expected, atol=1e-5)


@pytest.mark.parametrize("attend", [sdpa, dense])
def test_bf16_is_close_and_gradients_are_finite(attend):
    visible, queries, keys = list(visibilities())[6]
    q, k, v = (x.bfloat16().requires_grad_() for x in tensors(queries, keys))
    out = attend(q, k, v, visible)
    assert torch.allclose(out.float(), reference(q, k, v, visible).float(), atol=3e-2)
    out.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v))


def test_unknown_and_unavailable_back_ends_are_refused_at_once():
    with pytest.raises(CelerisError, match="choose one of"):
        backend("fast")
    if flash_varlen() is None:
        with pytest.raises(CelerisError, match="flash-attn"):
            backend("flash")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("case", list(visibilities()), ids=lambda c: type(c[0]).__name__ + f"-{c[1]}x{c[2]}")
def test_flash_equals_reference_on_a_gpu(case):
    visible, queries, keys = case
    moved = type(visible)(**{k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in vars(visible).items()})
    q, k, v = (x.cuda().bfloat16() for x in tensors(queries, keys))
    assert torch.allclose(flash(q, k, v, moved).float(), reference(q, k, v, moved).float(), atol=2e-2)
