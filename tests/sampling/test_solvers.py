"""Solvers, grids and scheduler: identities, loops by hand, counts, positions that wait, and mistakes."""

import pytest
import torch

from celeris.errors import CelerisError
from celeris.noise import GumbelSchedule, LossCDFSchedule, alpha_sigma
from celeris.rounding import Denoised
from celeris.sampling import (
    DDIM,
    Ancestral,
    Churn,
    DPMSolverPP2M,
    Euler,
    FullRenoise,
    Grid,
    Guided,
    Heun,
    Karras,
    Quantiles,
    Scheduler,
    UniformLogSNR,
    generate,
)
from celeris.streams import generator

SCHEDULE, CPU = LossCDFSchedule(-5, 8), torch.device("cpu")
SOLVERS = [DDIM(0.0), DDIM(0.6), Euler(), Heun(), DPMSolverPP2M(), Ancestral(), Churn(), FullRenoise()]
IDS = ["ddim", "ddim 0.6", "euler", "heun", "dpmpp_2m", "ancestral", "churn", "renoise"]


def inputs(count: int = 4):
    """`count` tensors (1, 3, 5) float64, and two levels; the last position waits."""
    rng = torch.Generator().manual_seed(0)
    tensors = [torch.randn(1, 3, 5, dtype=torch.float64, generator=rng) for _ in range(count)]
    return *tensors, torch.tensor([3.0, 0.5, 1.0]).double(), torch.tensor([1.0, -2.0, 1.0]).double()


def begin(solver, steps: int = 10):
    return solver.begin(SCHEDULE, steps, CPU)


def test_euler_in_edm_variables_is_ddim():
    z, x0, _, _, gamma_t, gamma_s = inputs()
    one, other = (begin(s).step(z, x0, gamma_t, gamma_s) for s in (Euler(), DDIM(0.0)))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_full_renoising_is_ddim_with_eta_1_and_churn_0_is_ddim_with_eta_0():
    z, x0, noise, _, gamma_t, gamma_s = inputs()
    for one, other in ((FullRenoise(), DDIM(1.0)), (Churn(0.0), DDIM(0.0))):
        a, b = (begin(s).step(z, x0, gamma_t, gamma_s, noise) for s in (one, other))
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_ancestral_is_the_posterior_written_out():
    """2107.00630, eq. 33, from the coefficients of q(z_t | z_s)."""
    z, x0, noise, _, gamma_t, gamma_s = inputs()
    (at, st), (as_, ss) = ((c[:, None] for c in alpha_sigma(g)) for g in (gamma_t, gamma_s))
    between = st**2 - (at / as_) ** 2 * ss**2
    mean = at / as_ * ss**2 / st**2 * z + as_ * between / st**2 * x0
    expected = mean + (between.clamp_min(0).sqrt() * ss / st) * noise
    torch.testing.assert_close(begin(Ancestral()).step(z, x0, gamma_t, gamma_s, noise), expected)


def test_churn_is_an_overshoot_and_the_forward_process_back():
    """EDM's algorithm 2: s = sigma/alpha is divided by 1 + c, then raised again with fresh noise."""
    z, x0, noise, _, gamma_t, gamma_s = inputs()
    low = gamma_s - 2 * torch.log(torch.tensor(1.3).double())
    low[2], noise[:, 2] = gamma_s[2], 0.0  # the last position waits
    below = DDIM(0.0).step(z, x0, gamma_t, low)
    (al, sl), (as_, ss) = ((c[:, None] for c in alpha_sigma(g)) for g in (low, gamma_s))
    back = as_ / al * below + (ss**2 - (as_ / al * sl) ** 2).clamp_min(0).sqrt() * noise
    torch.testing.assert_close(begin(Churn(3.0, 1.0, 0.0, 1.0)).step(z, x0, gamma_t, gamma_s, noise), back)
    outside = begin(Churn(3.0, 1.0, 0.0, 1e-6)).step(z, x0, gamma_t, gamma_s, noise)
    torch.testing.assert_close(outside, DDIM(0.0).step(z, x0, gamma_t, gamma_s))


def test_heun_is_algorithm_1_of_edm():
    z, first, second, _, gamma_t, gamma_s = inputs()
    stepper = begin(Heun())
    guess = stepper.step(z, first, gamma_t, gamma_s)
    out = stepper.step(guess, second, gamma_s, gamma_s)
    (at, st), (as_, ss) = ((c[:, None] for c in alpha_sigma(g)) for g in (gamma_t, gamma_s))
    y, now, then = z / at, st / at, ss / as_
    slope = (y - first) / now
    euler = y + (then - now) * slope
    expected = as_ * (y + (then - now) / 2 * (slope + (euler - second) / then))
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(out[:, 2], z[:, 2])


def test_multistep_history_is_each_positions_own():
    """Position 2 waits during the first step: its first move is DDIM's, the others' second move is extrapolated."""
    z, first, second, _, gamma_t, gamma_s = inputs()
    stepper = begin(DPMSolverPP2M())
    middle = stepper.step(z, first, gamma_t, gamma_s)
    torch.testing.assert_close(middle, DDIM(0.0).step(z, first, gamma_t, gamma_s))
    later = gamma_s - 1
    out = stepper.step(middle, second, gamma_s, later)
    plain = DDIM(0.0).step(middle, second, gamma_s, later)
    torch.testing.assert_close(out[:, 2], plain[:, 2])
    ratio = 1 / (gamma_t - gamma_s)[:2, None]  # h/h', below 2
    halfway = second[:, :2] + ratio / 2 * (second - first)[:, :2]
    torch.testing.assert_close(out[:, :2], DDIM(0.0).step(middle[:, :2], halfway, gamma_s[:2], later[:2]))


@pytest.mark.parametrize("solver", SOLVERS, ids=IDS)
def test_a_position_that_waits_keeps_its_z_bit_for_bit(solver):
    z, x0, other, noise, gamma_t, _ = (tensor.float() for tensor in inputs())
    stepper = begin(solver)
    for estimate in (x0, other):
        assert torch.equal(stepper.step(z, estimate, gamma_t, gamma_t, noise), z)


@pytest.mark.parametrize("schedule", [SCHEDULE, GumbelSchedule(mu=3.0)], ids=["linear", "gumbel"])
def test_grids_lay_out_what_they_promise(schedule):
    ends = schedule.gamma(torch.tensor([0.0, 1.0]).double())
    for steps in (1, 2, 7, 100):
        assert torch.equal(Quantiles().times(steps, schedule, CPU), 1 - torch.arange(steps + 1).double() / steps)
        even = schedule.gamma(UniformLogSNR().times(steps, schedule, CPU)).diff()
        torch.testing.assert_close(even, (ends[0] - ends[1]).expand(steps) / steps, rtol=1e-5, atol=1e-5)
        for rho in (1.0, 7.0):
            roots = torch.exp(schedule.gamma(Karras(rho).times(steps, schedule, CPU)) / (2 * rho)).diff()
            torch.testing.assert_close(roots, roots.mean().expand(steps), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("grid", [Quantiles(), Karras()], ids=["quantiles", "karras"])
@pytest.mark.parametrize("solver", SOLVERS, ids=IDS)
def test_the_loop_by_hand_is_generate_for_two_blocks(model, solver, grid):
    """One scheduler for both blocks: the first timestep begins anew. 2n − 1 calls for Heun, n for the others."""
    settings = {"num_inference_steps": 5, "temperature": 0.7, "seed": 5, "stagger": 2.0, "solver": solver, "grid": grid}
    out = generate(model, ["ab"], max_new_tokens=16, **settings)
    guided = Guided(model)
    scheduler = Scheduler(model, solver, temperature=0.7, stagger=2.0, grid=grid)
    scheduler.set_timesteps(5)
    assert len(scheduler.timesteps) == (9 if isinstance(solver, Heun) else 5)
    context, written = model.encode_context(torch.tensor([model.tokenizer.encode("ab")])), []
    rng = generator(5, "sampling")
    for _ in range(2):
        z, x0_hat = torch.randn(1, 8, 8, generator=rng), None
        for number, t in enumerate(scheduler.timesteps, start=1):
            answer = guided.denoise(z, t, context, x0_hat, stagger=2.0)
            if number < len(scheduler.timesteps):  # nobody looks at z after the last call
                step = scheduler.step(answer, t, z, rng)
                z, x0_hat = step.prev_sample, step.pred_x0
        ids = model.round(answer)
        written += ids[0].tolist()
        context = model.encode_context(ids, past=context)
    assert written == out.sequences[0]
    assert out.nfe == [guided.calls] == [2 * len(scheduler.timesteps)]


def test_every_solver_and_grid_writes_another_text(model):
    def text(solver, grid=None):
        out = generate(model, ["ab"], num_samples=2, max_new_tokens=32, num_inference_steps=6, solver=solver, grid=grid)
        return tuple(map(tuple, out.sequences))

    different = [DDIM(0.0), DDIM(0.6), Heun(), DPMSolverPP2M(), Ancestral(), Churn(), Churn(1.0), FullRenoise()]
    assert len({text(solver) for solver in different}) == len(different)
    assert len({text(DDIM(0.6), grid) for grid in (Quantiles(), Karras(), Karras(2.0))}) == 3


def test_a_grid_with_a_long_step_lowers_the_default_stagger(model):
    class Uneven(Grid):
        def times(self, steps, schedule, device):
            return torch.tensor([1.0, 0.5, *torch.linspace(0.4, 0, steps - 1).tolist()], dtype=torch.float64)

    scheduler = Scheduler(model, stagger=6.0, grid=Uneven())
    scheduler.set_timesteps(20)
    scheduler.fit_stagger()
    assert scheduler.stagger == pytest.approx(0.5)  # as with two even steps: 3n/4 − 1
    even = Scheduler(model, stagger=6.0)
    even.set_timesteps(4)
    even.fit_stagger()
    assert even.stagger == 2.0


def test_calls_out_of_order_and_grids_that_go_nowhere_are_refused(model):
    scheduler = Scheduler(model, Heun())
    z, out = torch.zeros(1, 8, 8), Denoised(torch.zeros(1, 8, model.vocab_size))
    with pytest.raises(CelerisError, match="call set_timesteps first"):
        scheduler.step(out, 1.0, z)
    scheduler.set_timesteps(4)
    with pytest.raises(CelerisError, match="t=0.75 where t=1 is next"):
        scheduler.step(out, 0.75, z)
    for t in scheduler.timesteps:
        scheduler.step(out, t, z)
    with pytest.raises(CelerisError, match="t=0.25 where no call is next"):
        scheduler.step(out, 0.25, z)
    scheduler.step(out, 1.0, z)
    with pytest.raises(CelerisError, match="t=0.5 where t=0.75 is next"):
        scheduler.step(out, 0.5, z)

    class Still(Grid):
        def times(self, steps, schedule, device):
            return torch.ones(steps + 1, dtype=torch.float64)

    with pytest.raises(CelerisError, match="Still gave 5 canvas times for 4 steps"):
        Scheduler(model, grid=Still()).set_timesteps(4)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DDIM(1.5), "eta is 1.5"),
        (lambda: Churn(-1.0), "churn is -1"),
        (lambda: Churn(noise=0.0), "noise is 0"),
        (lambda: Churn(low=0.9, high=0.1), "low=0.9 … high=0.1"),
        (lambda: Karras(0.0), "rho is 0"),
    ],
)
def test_settings_out_of_range_are_one_sentence(build, message):
    with pytest.raises(CelerisError, match=message):
        build()
