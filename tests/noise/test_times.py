"""Laws of the clock and of the levels: what they draw from, what they average to, and what they remember."""

import pytest
import torch
from numpy.polynomial.legendre import leggauss

from celeris.errors import CelerisError
from celeris.noise.levels import LevelMixture, Masked, PerToken, Staggered, Together
from celeris.noise.times import LogitNormal, LossAware, Stratified, TimeLaw, Uniform, golden_uniform
from celeris.objectives import CrossEntropy
from celeris.streams import stream
from celeris.training.buffers import SettledBuffers
from celeris.training.guard import GradientGuard
from tests.training.tiny import fit, tiny_module

CPU = torch.device("cpu")


def steep(t: torch.Tensor) -> torch.Tensor:
    """A loss that falls over two orders of magnitude."""
    return 0.05 + 5 * torch.exp(-6 * t)


def learned(loss=steep, **options) -> LossAware:
    law = LossAware(**options)
    u = (torch.arange(6400) + 0.5) / 6400
    law.fit(u, loss(u), torch.ones_like(u, dtype=torch.bool))
    return law


LAWS = {
    "stratified": Stratified,
    "uniform": Uniform,
    "logit_normal": lambda: LogitNormal(1.5, 0.8),
    "loss_aware": learned,
}


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS.keys())
def test_numbers_of_a_sample_do_not_depend_on_the_batch(make):
    """Permuted, split and alone: the same numbers; another seed, other numbers."""
    mixture = LevelMixture([Together(), PerToken(), Staggered(0, 4), Masked()], [1, 1, 1, 1], make())
    index = torch.arange(10**9, 10**9 + 12)
    whole = mixture.draw(index, 3, 4, 2, seed=1, device=CPU)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    for rows in (order, torch.arange(7, 12), torch.tensor([5])):
        part = mixture.draw(index[rows], 3, 4, 2, seed=1, device=CPU)
        assert torch.equal(part.u, whole.u[rows]) and torch.equal(part.weight, whole.weight[rows])
        assert torch.equal(part.eps, whole.eps[rows]) and part.coins == [whole.coins[row] for row in rows]
    assert whole.u.dtype == whole.weight.dtype == torch.float32
    assert ((whole.u >= 0) & (whole.u <= 1)).all() and torch.isfinite(whole.weight).all()
    other = mixture.draw(index, 3, 4, 2, seed=2, device=CPU)
    assert not torch.equal(other.u, whole.u)


def test_the_default_clock_is_the_golden_sequence_and_counts_once():
    index = torch.arange(40, 90)
    noise = LevelMixture([Together()], [1]).draw(index, 3, 4, 2, seed=9, device=CPU)
    want = golden_uniform(index[:, None] * 3 + torch.arange(3), stream(9, "time"))
    assert torch.equal(noise.u, want.float()[..., None].expand(50, 3, 4)) and (noise.weight == 1).all()


@pytest.mark.parametrize("law, gap", [(Stratified(), 3), (LogitNormal(0.4, 1.2), 3), (Uniform(), None)])
def test_strata_are_kept_by_quantile_functions_and_not_by_independent_draws(law, gap):
    """Largest gap of 1,000 times, mapped back to uniform, in units of 1/1000."""
    t = law.bend(law.uniforms(torch.arange(1000), 1, seed=3)).t.flatten()
    if isinstance(law, LogitNormal):
        t = torch.special.ndtr((torch.logit(t) - law.mean) / law.std)
    widest = t.sort().values.diff().max() * 1000
    assert abs(t.mean() - 0.5) < 0.03
    assert widest < gap if gap else widest > 4


def test_logit_normal_has_its_moments_and_weight_one():
    law = LogitNormal(1.5, 0.8)
    drawn = law.bend((torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000)
    logit = torch.logit(drawn.t)
    assert abs(logit.mean() - 1.5) < 1e-6 and abs(logit.std() - 0.8) < 1e-4 and (drawn.weight == 1).all()
    with pytest.raises(CelerisError, match="std"):
        LogitNormal(0, 0)


@pytest.mark.parametrize("uniform", [0.001, 0.1, 1.0])
def test_importance_weights_leave_every_integral_as_it_is(uniform):
    """E[weight·f(t)] = ∫ f(t) dt for a polynomial f: Gauss–Legendre on each piece of the quantile function is exact."""
    law = learned(uniform=uniform, bins=32)
    node, node_weight = (torch.from_numpy(x) for x in leggauss(4))
    shares = law.shares
    v = (shares.cumsum(0) - shares)[:, None] + shares[:, None] * (node + 1) / 2
    drawn = law.bend(v)
    for power in range(7):
        got = (shares[:, None] * node_weight / 2 * drawn.weight * drawn.t**power).sum()
        assert abs(got - 1 / (power + 1)) < 1e-12
    assert drawn.weight.max() <= 1 / uniform + 1e-9
    assert (drawn.t.flatten().diff() > 0).all()


def test_importance_sampling_takes_the_variance_out():
    """With p ∝ |loss| the weighted loss is constant: E[(weight·loss)²] falls from ∫ loss² to (∫ loss)²."""
    law = learned(uniform=0.001)
    v = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    drawn = law.bend(v)
    best, plain = steep(v).mean() ** 2, steep(v).square().mean()
    assert (drawn.weight * steep(drawn.t)).square().mean() < best + 0.02 * (plain - best)


def test_importance_sampling_waits_until_every_bin_was_seen_and_ignores_what_is_not_counted():
    law = LossAware(bins=8, warm_up=2)
    u, uniform = (torch.arange(14) + 0.5) / 16, torch.full((8,), 1 / 8, dtype=torch.float64)
    law.fit(u, 10 * u, torch.ones(14, dtype=torch.bool))
    assert torch.allclose(law.shares, uniform)
    late = torch.tensor([0.95, 0.96])
    law.fit(late, torch.tensor([9.5, 1e6]), torch.tensor([True, False]))
    assert torch.allclose(law.shares, uniform)
    law.fit(late, torch.tensor([9.5, 9.5]), torch.ones(2, dtype=torch.bool))
    assert (law.shares.diff() > 0).all() and law.mean_square[-1] < 100


def test_history_forgets_what_lies_further_back_than_its_memory():
    law, u, counted = LossAware(bins=4, memory=400), (torch.arange(400) + 0.5) / 400, torch.ones(400, dtype=torch.bool)
    law.fit(u, torch.full((400,), 7.0), counted)
    for _ in range(40):
        law.fit(u, 1 + u, counted)
    assert torch.allclose(law.mean_square.sqrt(), torch.tensor([1.125, 1.375, 1.625, 1.875]), atol=0.01)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, 1e30])
def test_a_loss_that_is_not_a_number_reaches_no_probability(broken):
    first, second = learned(), learned()
    u = torch.linspace(0.01, 0.99, 40)
    spoiled = torch.where(torch.arange(40) == 7, broken, steep(u))
    first.fit(u, spoiled, torch.ones(40, dtype=torch.bool))
    second.fit(u, steep(u), torch.arange(40) != 7)
    assert torch.equal(first.shares, second.shares) and torch.isfinite(first.shares).all()


def test_finite_squares_whose_sum_is_not_are_still_finite():
    law = learned()
    law.fit(torch.full((100,), 0.5), torch.full((100,), 1.5e19), torch.ones(100, dtype=torch.bool))
    assert torch.isfinite(law.mean_square).all() and torch.isfinite(law.shares).all()


def test_history_lives_in_the_checkpoint_and_is_undone_with_a_refused_step():
    mixture = LevelMixture([Together()], [1], LossAware(bins=4))
    holder = torch.nn.ModuleDict({"objective": mixture})
    u, counted = torch.rand(5, 2, 6, generator=torch.Generator().manual_seed(0)), torch.ones(5, 2, 6, dtype=torch.bool)
    settled = SettledBuffers(holder)
    mixture.fit(u, 3 * u, counted)
    mixture.fit(u, u, counted)  # two micro-batches of one step
    settled.settle()
    after = {name: value.clone() for name, value in holder.state_dict().items()}
    assert set(after) == {"objective.times.mean_square", "objective.times.seen"} and after["objective.times.seen"].all()
    mixture.fit(u, 100 * u, counted)
    settled.undo()
    assert all(torch.equal(value, after[name]) for name, value in holder.state_dict().items())
    mixture.times.mean_square[2] = torch.nan
    settled.heal()
    assert torch.equal(mixture.times.mean_square, after["objective.times.mean_square"])
    copy = LevelMixture([Together()], [1], LossAware(bins=4))
    copy.load_state_dict({name.removeprefix("objective."): value for name, value in after.items()})
    drawn = [law.draw(torch.arange(9), 2, 3, 1, seed=5, device=CPU) for law in (mixture, copy)]
    assert torch.equal(drawn[0].u, drawn[1].u)
    assert not list(LevelMixture([Together()], [1]).state_dict())  # checkpoints of fixed laws stay as they were


class NotANumber(CrossEntropy):
    """The loss of sample 19 is NaN, and so is a number of the history after it."""

    def forward(self, model, batch, seed):
        output = super().forward(model, batch, seed)
        if model.training and bool((batch.index == 19).any()):
            self.levels.times.mean_square[1] = torch.nan
            output.loss = output.loss * torch.nan
        return output


def trained(folder, steps: int, ckpt=None):
    """Global batch 8 in micro-batches of 2: sample 19 falls into step 3, which is refused."""
    objective = NotANumber(LevelMixture([Together(), PerToken()], [1, 1], LossAware(bins=4, warm_up=2)))
    module = tiny_module(objective=objective, guard=GradientGuard(skip_budget=2))
    return fit(folder, module, max_steps=steps, ckpt=ckpt, every_n_steps=4)


def test_a_run_with_a_refused_step_in_it_resumes_with_the_same_history(tmp_path):
    straight = trained(tmp_path / "straight", 6)
    trained(tmp_path / "halves", 6)
    (middle,) = (tmp_path / "halves" / "checkpoints").glob("*4*.ckpt")
    resumed = trained(tmp_path / "rest", 6, ckpt=middle)
    times = straight.objective.levels.times
    assert straight.guard.skipped == resumed.guard.skipped == 1
    assert torch.isfinite(times.mean_square).all() and (times.seen > 2).all() and times.shares.std() > 0
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    saved = torch.load(middle, weights_only=True)["state_dict"]
    assert not torch.equal(saved["objective.levels.times.seen"], times.seen)


def test_each_position_gets_the_weight_of_the_time_it_was_drawn_by():
    law = learned(uniform=0.1, bins=16)
    density = 16 * law.shares
    for levels in (Together(), PerToken()):
        noise = LevelMixture([levels], [1], law).draw(torch.arange(50), 3, 4, 1, seed=1, device=CPU)
        want = 1 / density[(noise.u.double() * 16).long().clamp_max(15)]
        inside = (noise.u * 16 - (noise.u * 16).round()).abs() > 1e-4  # off the edges, which float32 may cross
        assert torch.allclose(noise.weight[inside].double(), want[inside])
    noise = LevelMixture([Staggered(1, 4)], [1], law).draw(torch.arange(50), 3, 4, 1, seed=1, device=CPU)
    assert (noise.weight == noise.weight[..., :1]).all() and noise.weight.std() > 0.1


def test_masked_noises_a_share_equal_to_the_clock():
    noise = LevelMixture([Masked(0.999)], [1]).draw(torch.arange(400), 2, 200, 1, seed=4, device=CPU)
    clock = golden_uniform(torch.arange(400)[:, None] * 2 + torch.arange(2), stream(4, "time"))
    noised = noise.u == torch.tensor(0.999)
    assert (noised | (noise.u == 0)).all()
    error = (noised.double().mean(-1) - clock) / (clock * (1 - clock) / 200).sqrt()
    assert abs(error.mean()) < 0.15 and 0.9 < error.std() < 1.1
    with pytest.raises(CelerisError, match="noise"):
        Masked(1.0)


def test_weights_of_the_mixture_must_fit_its_laws():
    for weights in ([1], [1, -1], [0, 0]):
        with pytest.raises(CelerisError, match="weight"):
            LevelMixture([Together(), PerToken()], weights)


def test_a_fixed_law_learns_nothing():
    law: TimeLaw = Stratified()
    law.fit(torch.rand(3), torch.rand(3), torch.ones(3, dtype=torch.bool))
    assert not list(law.buffers()) and not list(law.parameters())
