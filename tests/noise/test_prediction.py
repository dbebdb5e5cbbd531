"""x0, eps, v: every conversion against its definition, and back, in float64."""

import itertools

import pytest
import torch

from celeris.noise.prediction import (
    X0,
    Eps,
    V,
    eps_from_x0,
    score_from_x0,
    v_from_x0,
    velocity_from_x0,
    x0_from_eps,
    x0_from_v,
)
from celeris.noise.process import add_noise, alpha_sigma

GAMMA = torch.linspace(-15, 15, 61, dtype=torch.float64)
KINDS = {"x0": X0(), "eps": Eps(), "v": V()}


@pytest.fixture
def point() -> dict[str, torch.Tensor]:
    """x0, eps, the z they make and v from its definition."""
    random = torch.Generator().manual_seed(3)
    x0, eps = torch.randn(2, len(GAMMA), 5, dtype=torch.float64, generator=random)
    alpha, sigma = alpha_sigma(GAMMA[:, None])
    return {"x0": x0, "eps": eps, "v": alpha * eps - sigma * x0, "z": alpha * x0 + sigma * eps}


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got - want).abs().max() / want.abs().max()).item()


@pytest.mark.parametrize("start, end", list(itertools.product(KINDS, KINDS)))
def test_every_pair_converts_and_returns(point, start, end):
    z = point["z"]
    there = KINDS[end].from_x0(KINDS[start].to_x0(point[start], z, GAMMA), z, GAMMA)
    back = KINDS[start].from_x0(KINDS[end].to_x0(there, z, GAMMA), z, GAMMA)
    assert relative(there, point[end]) < 1e-8  # 1e-16 times alpha/sigma or its inverse, squared at worst
    assert relative(back, point[start]) < 1e-8


def test_z_is_made_again_from_any_prediction(point):
    for name, kind in KINDS.items():
        x0 = kind.to_x0(point[name], point["z"], GAMMA)
        assert relative(add_noise(x0, GAMMA, eps_from_x0(x0, point["z"], GAMMA)), point["z"]) < 1e-12


def test_v_turns_x0_and_eps_by_a_right_angle(point):
    """(z, v) is (x0, eps) turned by the angle atan(sigma/alpha): eps = sigma·z + alpha·v."""
    alpha, sigma = alpha_sigma(GAMMA[:, None])
    v = v_from_x0(point["x0"], point["z"], GAMMA)
    assert relative(sigma * point["z"] + alpha * v, point["eps"]) < 1e-12
    assert relative(x0_from_v(v, point["z"], GAMMA), point["x0"]) < 1e-12


def test_score_is_the_gradient_of_the_log_density(point):
    z = point["z"].clone().requires_grad_()
    alpha, sigma = alpha_sigma(GAMMA[:, None])
    torch.distributions.Normal(alpha * point["x0"], sigma).log_prob(z).sum().backward()
    got = score_from_x0(point["x0"], point["z"], GAMMA)
    assert torch.allclose(got, z.grad, rtol=1e-8, atol=1e-8)


def test_velocity_is_the_derivative_along_the_path(point):
    h = 1e-5
    ahead, behind = (add_noise(point["x0"], GAMMA + d, point["eps"]) for d in (h, -h))
    got = velocity_from_x0(point["x0"], point["z"], GAMMA)
    assert torch.allclose(got, (ahead - behind) / (2 * h), atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_is_widened_and_stays_finite(dtype):
    gamma = torch.tensor([-60.0, -15, 0, 15, 60]).to(dtype)
    x0, z = torch.ones(5, 2).to(dtype), torch.full((5, 2), -0.5).to(dtype)
    for convert in (eps_from_x0, x0_from_eps, v_from_x0, x0_from_v, score_from_x0, velocity_from_x0):
        out = convert(x0, z, gamma)
        assert out.dtype == torch.float32 and torch.isfinite(out).all()
    assert torch.allclose(x0_from_eps(eps_from_x0(x0, z, gamma), z, gamma)[:3], x0.float()[:3], rtol=1e-3)
