"""Every schedule that configs/schedule can name, built as train.py builds it, against identities and the papers."""

import math
from functools import cache
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

from celeris.config.compose import CONFIGS, compose_config
from celeris.noise import FixedSchedule, Observed, Schedule, alpha_sigma, evidence_scale, snr

NAMES = sorted(path.stem for path in (Path(CONFIGS) / "schedule").glob("*.yaml"))
DOUBLE = torch.float64


@cache
def composed(name: str) -> DictConfig:
    """What train.py reads with schedule=`name`, for a vocabulary of 30."""
    config = compose_config("train", [f"schedule={name}"])
    config.vocabulary = {"size": 30, "pad_id": 0, "eos_id": 1, "unk_id": 2, "entropy": 2.9}
    return config


def build(name: str, **arguments) -> Schedule:
    schedule = instantiate(composed(name).schedule, _convert_="all", **arguments)
    assert isinstance(schedule, Schedule)
    return schedule


def seen(gamma: Tensor, value: Tensor, counted: Tensor | None = None) -> Observed:
    """`value` as cross-entropy and as rate."""
    everywhere = torch.ones_like(gamma, dtype=torch.bool)
    return Observed(gamma.detach(), value.detach(), everywhere if counted is None else counted, value.detach)


def train(schedule: Schedule, curve, steps: int, lr: float = 0.03) -> Schedule:
    """Fit to `curve`(gamma), at the levels the schedule itself draws, evenly in t."""
    learning = [p for p in schedule.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(learning, lr=lr) if learning else None
    for step in range(steps):
        gamma = schedule.gamma((torch.arange(256, dtype=DOUBLE) + (step * 0.618) % 1) / 256)
        term = schedule.fit(seen(gamma, curve(gamma)))
        if optimizer is not None and term is not None:
            optimizer.zero_grad()
            term.backward()
            optimizer.step()
    return schedule


def bump(gamma: Tensor) -> Tensor:
    """Nats per unit of gamma that are gained mostly around gamma = 3."""
    return 3 * torch.exp(-0.5 * (gamma - 3).square()) + 0.05


def rising(gamma: Tensor) -> Tensor:
    return 3 * torch.sigmoid(1.5 * (gamma - 3))


@pytest.fixture(scope="module")
def fitted() -> dict[str, Schedule]:
    """Each schedule after some training, so that the identities are not those of a start value."""
    return {name: train(build(name), rising if name == "loss_cdf" else bump, 40) for name in NAMES}


@pytest.fixture(params=[(name, state) for name in NAMES for state in ("new", "fitted")], ids="-".join)
def schedule(request, fitted) -> Schedule:
    name, state = request.param
    return build(name) if state == "new" else fitted[name]


# -- identities of every schedule -------------------------------------------------------------------------------------


def test_it_increases_strictly_and_inverts(schedule):
    t = torch.linspace(0, 1, 20001, dtype=DOUBLE)
    gamma = schedule.gamma(t)
    assert torch.isfinite(gamma).all() and (gamma.diff() > 0).all()
    assert torch.allclose(schedule.t(gamma), t, rtol=0, atol=1e-9)
    between = gamma[0] + (gamma[-1] - gamma[0]) * torch.linspace(0, 1, 997, dtype=DOUBLE)
    assert torch.allclose(schedule.gamma(schedule.t(between)), between, rtol=0, atol=1e-7)
    outside = torch.stack([gamma[0] - 5, gamma[-1] + 5])
    assert torch.allclose(schedule.t(outside), torch.tensor([0.0, 1.0], dtype=DOUBLE), atol=1e-4)


def test_its_slope_is_the_derivative(schedule):
    t = torch.linspace(0.0123, 0.9876, 301, dtype=DOUBLE)
    h = 1e-6
    numeric = (schedule.gamma(t + h) - schedule.gamma(t - h)) / (2 * h)
    assert torch.allclose(schedule.slope(t), numeric, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_coefficients_are_finite_up_to_the_ends(schedule, dtype):
    t = torch.tensor([0, 1e-5, 0.5, 1 - 1e-5, 1], dtype=DOUBLE).to(dtype)
    gamma, slope = schedule.gamma(t), schedule.slope(t)
    assert gamma.dtype == slope.dtype == dtype and (slope > 0).all()
    alpha, sigma = alpha_sigma(gamma)
    assert alpha.dtype == sigma.dtype == torch.float32  # bf16 has no digits left there
    for value in (alpha, sigma, snr(gamma), evidence_scale(gamma), slope):
        assert torch.isfinite(value).all() and (value > 0).all()


def test_it_answers_in_the_shape_and_precision_of_the_question(schedule):
    t = torch.rand(2, 3, 4)
    for value in (schedule.gamma(t), schedule.slope(t), schedule.t(schedule.gamma(t))):
        assert value.shape == t.shape and value.dtype == t.dtype
    exact = schedule.gamma(t.double())
    assert torch.allclose(schedule.gamma(t).double(), exact, rtol=1e-6, atol=1e-6)  # float64 inside


# -- the papers' own formulas -----------------------------------------------------------------------------------------


def cosine(time: Tensor) -> tuple[Tensor, Tensor]:
    """Nichol & Dhariwal, eq. 17; time 0 is data."""

    def f(t: Tensor) -> Tensor:
        return torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2

    share = f(time) / f(torch.zeros_like(time))
    return share.sqrt(), (1 - share).sqrt()


def linear(time: Tensor) -> tuple[Tensor, Tensor]:
    """VDM, eq. 4: sigma² = sigmoid(gamma); time is gamma."""
    variance = 1 / (1 + torch.exp(-time))
    return (1 - variance).sqrt(), variance.sqrt()


def sqrt(time: Tensor) -> tuple[Tensor, Tensor]:
    """Diffusion-LM, appendix A; time 0 is data."""
    share = 1 - (time + 1e-4).sqrt()
    return share.sqrt(), (1 - share).sqrt()


def rectified_flow(time: Tensor) -> tuple[Tensor, Tensor]:
    """ELF: z = time·x + (1 − time)·2·eps; time 1 is data."""
    return time, 2 * (1 - time)


def karras(time: Tensor) -> tuple[Tensor, Tensor]:
    """EDM, eq. 5 with i/(N − 1) = time, table 1; z = x + σ·eps, and x is 0.5 times a variable of unit variance."""
    noise = (80 ** (1 / 7) + time * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7
    return torch.full_like(time, 0.5), noise


FORMULAS = {f.__name__: f for f in (cosine, linear, sqrt, rectified_flow, karras)}


@pytest.mark.parametrize("name", NAMES)
def test_the_ratio_of_signal_and_noise_is_the_papers(name):
    schedule = build(name)
    if not isinstance(schedule, FixedSchedule):
        return  # it has no closed form
    t = torch.linspace(0, 1, 1001, dtype=DOUBLE)
    alpha, sigma = alpha_sigma(schedule.gamma(t))
    signal, noise = FORMULAS[name](schedule.paper_time(t))
    assert torch.allclose((alpha / sigma).log(), (signal / noise).log(), rtol=0, atol=1e-8)


def test_the_papers_times_run_as_documented():
    ends = torch.tensor([0.0, 1.0], dtype=DOUBLE)
    for name, expected in {
        "cosine": (0.0, 1.0),
        "sqrt": (0.0, 1.0),
        "rectified_flow": (1.0, 0.0),
        "karras": (1.0, 0.0),
        "linear": (-2.0, 9.0),
    }.items():
        schedule = build(name)
        assert isinstance(schedule, FixedSchedule)
        assert torch.allclose(schedule.paper_time(ends), torch.tensor(expected, dtype=DOUBLE), atol=0.02), name


def test_cutting_elsewhere_keeps_the_formula():
    schedule = build("cosine", gamma_min=-3, gamma_max=4)
    t = torch.linspace(0, 1, 101, dtype=DOUBLE)
    alpha, sigma = alpha_sigma(schedule.gamma(t))
    signal, noise = cosine(schedule.paper_time(t))
    assert torch.allclose(alpha / sigma, signal / noise, rtol=1e-9)
    assert torch.allclose(schedule.gamma(t[[0, -1]]), torch.tensor([-3.0, 4.0], dtype=DOUBLE))


# -- fits -------------------------------------------------------------------------------------------------------------


def spread(schedule: Schedule, density) -> float:
    """Standard deviation over mean of density·dgamma/dt for t uniform: 0 when gamma has that density."""
    t = torch.linspace(0, 1, 4001, dtype=DOUBLE)
    with torch.no_grad():
        share = density(schedule.gamma(t)) * schedule.slope(t)
    return (share.std() / share.mean()).item()


def test_learned_reaches_the_density_of_the_rate():
    schedule = build("learned")
    before = spread(schedule, bump)
    train(schedule, bump, 120)
    assert before > 1.2
    assert spread(schedule, bump) < 0.1


def test_learned_has_the_least_variance_for_a_noisy_rate():
    """A rate that is 0 or r/p with probability p(gamma) has root mean square r/√p, and that is the density to reach."""
    torch.manual_seed(3)

    def noisy(gamma: Tensor) -> Tensor:
        chance = torch.where(gamma > 3, 0.25, 1.0)
        return torch.where(torch.rand_like(gamma) < chance, bump(gamma) / chance, 0.0)

    schedule = train(build("learned"), noisy, 200, lr=0.02)
    right = spread(schedule, lambda gamma: bump(gamma) * torch.where(gamma > 3, 2.0, 1.0))
    wrong = spread(schedule, bump)
    assert right < 0.25 < wrong


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_entropy_rate_reaches_the_power_of_the_rate(power):
    schedule = train(build("entropy_rate", power=power, bins=96, uniform=0.001), bump, 60)
    assert spread(schedule, lambda gamma: bump(gamma) ** power) < 0.08  # bins 0.11 wide
    assert spread(schedule, lambda gamma: bump(gamma) ** (1.5 - power)) > 0.4


def test_levels_nobody_visited_are_taken_to_be_typical():
    schedule = build("entropy_rate")
    gamma = torch.linspace(1, 4, 200)
    schedule.fit(seen(gamma, 7 * torch.ones_like(gamma)))
    t = torch.linspace(0, 1, 101, dtype=DOUBLE)
    assert torch.allclose(schedule.gamma(t), -2 + 11 * t, atol=1e-6)


def adaptive() -> list[str]:
    gamma = torch.linspace(-1, 8, 50)
    names = []
    for name in NAMES:
        schedule = build(name)
        state = {key: value.clone() for key, value in schedule.state_dict().items()}
        if schedule.fit(seen(gamma, bump(gamma))) is not None or any(
            not torch.equal(state[key], value) for key, value in schedule.state_dict().items()
        ):
            names.append(name)
    return names


ADAPTIVE = adaptive()


def test_the_schedules_that_learn_are_these():
    assert {"gumbel", "loss_cdf", "learned", "entropy_rate"} <= set(ADAPTIVE)
    assert not set(ADAPTIVE) & set(FORMULAS)


def learned_from(name: str, gamma: Tensor, value: Tensor, counted: Tensor | None = None) -> list[Tensor]:
    """All that one fit changes or returns: buffers, the term, its gradients."""
    schedule = build(name)
    term = schedule.fit(seen(gamma, value, counted))
    out = list(schedule.state_dict().values())
    if term is not None:
        term.backward()
        out += [term.detach(), *[p.grad for p in schedule.parameters() if p.grad is not None]]
    return out


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", ADAPTIVE)
@pytest.mark.parametrize("odd", [1e6, math.nan, math.inf])
def test_what_is_not_counted_teaches_nothing(name, odd):
    gamma = torch.linspace(-1, 8, 60)
    counted = torch.arange(60) % 3 != 0
    value = bump(gamma)
    clean = learned_from(name, gamma[counted], value[counted])
    assert same(learned_from(name, gamma, torch.where(counted, value, odd), counted), clean)
    assert not same(learned_from(name, gamma, value + 1.0 * (gamma > 3)), clean)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_a_number_that_is_none_does_not_poison_the_fit(name):
    gamma, broken = torch.linspace(-1, 8, 60), torch.arange(60) == 17
    poisoned = learned_from(name, gamma, torch.where(broken, math.nan, bump(gamma)))
    assert same(poisoned, learned_from(name, gamma, bump(gamma), ~broken))


@pytest.mark.parametrize("name", ADAPTIVE)
def test_nothing_counted_changes_nothing(name):
    schedule, gamma = build(name), torch.linspace(-1, 8, 60)
    before = {key: value.clone() for key, value in schedule.state_dict().items()}
    term = schedule.fit(seen(gamma, torch.full_like(gamma, math.nan), torch.zeros(60, dtype=torch.bool)))
    if term is not None:
        term.backward()
        assert term == 0 and all(p.grad is None or (p.grad == 0).all() for p in schedule.parameters())
    assert all(torch.equal(before[key], value) for key, value in schedule.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_its_state_is_all_there_is_to_it(name, fitted):
    copy = build(name)
    copy.load_state_dict(fitted[name].state_dict())
    t = torch.linspace(0, 1, 101, dtype=DOUBLE)
    assert torch.equal(copy.gamma(t), fitted[name].gamma(t)) and torch.equal(copy.slope(t), fitted[name].slope(t))
    if name in ADAPTIVE:
        assert not torch.allclose(copy.gamma(t), build(name).gamma(t), atol=1e-3)


# -- which gradient trains which parameter ----------------------------------------------------------------------------


def test_the_levels_train_the_end_points_and_the_fit_trains_the_path():
    schedule = build("learned", learn_ends=True)
    interior = {name for name, _ in schedule.named_parameters()} - {"ends"}
    t = torch.rand(64)
    assert {n for n, p in schedule.named_parameters() if reached(schedule.gamma(t).sum(), p)} == {"ends"}
    assert {n for n, p in schedule.named_parameters() if reached(schedule.slope(t).sum(), p)} == {"ends"}
    rate = bump(schedule.gamma(t)).requires_grad_()
    gamma = schedule.gamma(t)
    term = schedule.fit(Observed(gamma, rate, torch.ones_like(t, dtype=torch.bool), lambda: rate))
    assert term is not None
    assert {n for n, p in schedule.named_parameters() if reached(term, p)} == interior
    assert not reached(term, rate)


def reached(value: Tensor, parameter: Tensor) -> bool:
    (gradient,) = torch.autograd.grad(value, parameter, retain_graph=True, allow_unused=True)
    return gradient is not None and bool((gradient != 0).any())


def test_the_gradient_of_the_end_points_is_that_of_an_affine_map():
    schedule = build("learned", learn_ends=True)
    t = torch.tensor([0.0, 0.3, 1.0], dtype=DOUBLE)
    gamma = schedule.gamma(t)
    m = ((gamma - gamma[0]) / (gamma[-1] - gamma[0])).detach()
    for k in range(3):
        (gradient,) = torch.autograd.grad(gamma[k], schedule.ends, retain_graph=True)
        assert torch.allclose(gradient.double(), torch.stack([1 - m[k], m[k]]), atol=1e-6)


def test_fixed_end_points_stay():
    schedule = build("learned")
    assert not schedule.gamma(torch.rand(4)).requires_grad
    train(schedule, bump, 5)
    assert torch.equal(schedule.gamma(torch.tensor([0.0, 1.0])), torch.tensor([-2.0, 9.0]))


def test_the_gradient_of_the_fit_is_that_of_the_integral():
    """∫ rate²/p_θ dgamma differentiated numerically, with the levels and their density held."""
    schedule = train(build("learned"), bump, 30)
    t = (torch.arange(2000, dtype=DOUBLE) + 0.5) / 2000
    gamma = schedule.gamma(t)
    schedule.double()
    term = schedule.fit(seen(gamma, bump(gamma)))
    assert term is not None
    (gradient,) = torch.autograd.grad(term, schedule.log_weight)
    grid = torch.linspace(-2, 9, 4001, dtype=DOUBLE)

    def integral() -> Tensor:
        return torch.trapezoid(bump(grid).square() * schedule.slope(schedule.t(grid)), grid)

    scale = torch.trapezoid(bump(grid), grid).square()
    for k in (0, 11, 32):
        values = []
        for h in (1e-4, -1e-4):
            with torch.no_grad():
                schedule.log_weight[k] += h
                values.append(integral())
                schedule.log_weight[k] -= h
        numeric = (values[0] - values[1]) / 2e-4 / scale
        assert math.isclose(gradient[k].item(), numeric.item(), rel_tol=0.02, abs_tol=1e-4)
