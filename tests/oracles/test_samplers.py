"""Samplers under perfect denoisers: they return the truth, or reproduce the source's statistics."""

import pytest
import torch

from celeris.batch import Batch
from celeris.denoiser import Transformer
from celeris.embedding import TokenEmbedding
from celeris.model import DiffusionLM
from celeris.noise import GumbelSchedule, LossCDFSchedule
from celeris.noise.levels import LevelMixture, PerToken, Staggered, Together
from celeris.objectives import CrossEntropy
from celeris.rounding import Denoised, evidence
from celeris.sampling import (
    DDIM,
    Ancestral,
    Churn,
    DPMSolverPP2M,
    Euler,
    FullRenoise,
    Heun,
    Karras,
    Quantiles,
    Scheduler,
    UniformLogSNR,
)
from tests.oracles.chain import Chain, Oracle

SOLVERS = [
    DDIM(0.0), DDIM(0.5), DDIM(1.0), Euler(), Heun(), DPMSolverPP2M(), Ancestral(), Churn(), FullRenoise(),
]  # fmt: skip


def name(solver) -> str:
    return "-".join([type(solver).__name__, *(f"{value:g}" for value in vars(solver).values())])


def run(oracle, denoise, rows: int, length: int, steps: int, solver, seed: int = 0, grid=None):
    scheduler = Scheduler(oracle, solver, stagger=oracle.stagger, grid=grid)
    scheduler.set_timesteps(steps)
    rng = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, length, oracle.embedding.dim, generator=rng)
    for t in scheduler.timesteps:
        out = denoise(z, oracle.gamma_at(t, length, oracle.stagger).expand(rows, length))
        z, _ = scheduler.step(out, t, z, rng)
    return z, out.logits.argmax(-1)


@pytest.mark.parametrize("solver", SOLVERS, ids=name)
@pytest.mark.parametrize("stagger", [0.0, 3.0])
@pytest.mark.parametrize(
    ("grid", "steps"),
    [
        (Quantiles(), [1, 2, 10]),
        (UniformLogSNR(), [1, 2, 10]),
        (Karras(), [1, 2, 10]),
        pytest.param(Quantiles(), [1000], marks=pytest.mark.slow),
    ],
    ids=["quantiles", "log_snr", "karras", "long"],
)
def test_a_denoiser_that_knows_x0_makes_every_solver_return_it(solver, stagger, grid, steps):
    """At the end z = alpha_min·x0 + sigma_min·noise; with gamma_min = −40 that is x0 itself."""
    chain = Chain(vocab_size=5)
    oracle = Oracle(chain.table, LossCDFSchedule(-40, 12), stagger)
    ids = chain.sample(4, 6)
    truth = torch.full((4, 6, 5), -1e9).scatter(-1, ids[..., None], 0.0)
    for n in steps:
        z, out = run(oracle, lambda z, gamma: Denoised(truth), 4, 6, n, solver, grid=grid)
        assert torch.equal(out, ids)
        assert torch.allclose(z, chain.table[ids], atol=1e-4), n


@pytest.mark.parametrize(
    "solver", [DDIM(0.0), DDIM(0.5), Euler(), Ancestral(), FullRenoise(), Churn(9.0, 1.0, 0.0, 1.0)], ids=name
)
def test_a_step_with_an_exact_x0_keeps_the_forward_marginal(solver):
    """It maps N(alpha_t·x0, sigma_t²) to N(alpha_s·x0, sigma_s²)."""
    rng = torch.Generator().manual_seed(0)
    x0 = torch.full((20000, 1), 0.7)
    noise, fresh = torch.randn(20000, 1, generator=rng), torch.randn(20000, 1, generator=rng)
    gamma_t, gamma_s = torch.full((20000,), 2.0), torch.full((20000,), -0.5)
    alpha, sigma = torch.sigmoid(-gamma_t[0]).sqrt(), torch.sigmoid(gamma_t[0]).sqrt()
    stepper = solver.begin(LossCDFSchedule(-4, 6), 10, x0.device)
    out = stepper.step(alpha * x0 + sigma * noise, x0, gamma_t, gamma_s, fresh)
    assert abs(out.mean() - torch.sigmoid(-gamma_s[0]).sqrt() * 0.7) < 0.02
    assert abs(out.std() - torch.sigmoid(gamma_s[0]).sqrt()) < 0.02


def bigram_error(chain, ids) -> float:
    """Total variation between the pairs that occur and those of the chain."""
    pairs = ids[:, :-1].flatten() * len(chain.first) + ids[:, 1:].flatten()
    seen = torch.bincount(pairs, minlength=len(chain.first) ** 2).double() / len(pairs)
    return float((seen - (chain.first[:, None] * chain.step).flatten()).abs().sum() / 2)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [*SOLVERS, Churn(8.0, 1.0)], ids=name)
def test_the_bigrams_of_eight_symbols_come_closer_with_steps(solver):
    """From one step, where every position takes its likeliest symbol, to many. Solvers whose fresh noise does not
    shrink with the step keep a bias; the others come down to what 1,500 rows can tell."""
    chain, rows, length = Chain(vocab_size=8), 1500, 5
    oracle = Oracle(chain.table, LossCDFSchedule(-4, 8))
    errors = [
        bigram_error(
            chain,
            run(oracle, lambda z, gamma: Denoised(chain.posterior(z, gamma).float()), rows, length, n, solver)[1],
        )
        for n in (1, 4, 16, 64)
    ]
    assert errors[0] > errors[1] > min(errors[2:]) and errors[0] > 2 * errors[3], errors
    floor = bigram_error(chain, chain.sample(rows, length, seed=9))
    biased = type(solver) is FullRenoise or getattr(solver, "eta", 0) > 0 or getattr(solver, "churn", 0) > 20
    assert biased or errors[3] < 2 * floor, (errors, floor)


@pytest.mark.parametrize("stagger", [0.0, 2.0])
@pytest.mark.parametrize("eta", [0.0, 0.4])
def test_a_thousand_steps_reproduce_the_bigrams_of_the_chain(stagger, eta):
    chain, rows, length = Chain(), 3000, 5
    oracle = Oracle(chain.table, LossCDFSchedule(-5, 11), stagger)
    _, ids = run(oracle, lambda z, gamma: Denoised(chain.posterior(z, gamma).float()), rows, length, 1000, DDIM(eta))
    pairs = torch.stack([ids[:, :-1], ids[:, 1:]], -1).flatten(0, 1)
    seen = torch.zeros(4, 4, dtype=torch.float64)
    seen.index_put_((pairs[:, 0], pairs[:, 1]), torch.ones(len(pairs), dtype=torch.float64), accumulate=True)
    expected = chain.first[:, None] * chain.step
    error = (expected * (1 - expected) / rows).sqrt()  # pairs of a row are dependent: rows, not pairs, count
    assert ((seen / seen.sum() - expected).abs() < 4 * error).all()


def test_more_steps_come_closer_to_the_truth():
    """p = (.7, .2, .1): one step puts all mass on the likeliest token, a thousand come within 0.01 (2602.19619)."""
    p = torch.tensor([0.7, 0.2, 0.1])
    table = torch.nn.functional.normalize(torch.eye(3) - 1 / 3, dim=-1) * 3**0.5
    oracle = Oracle(table, GumbelSchedule(mu=0.0, beta=1.0))
    miss = []
    for steps in (1, 8, 50, 1000):
        _, ids = run(
            oracle, lambda z, gamma: Denoised(evidence(z, gamma.float(), table) + p.log()), 40_000, 1, steps, DDIM(0.0)
        )
        miss.append(float((torch.bincount(ids.flatten(), minlength=3) / 40_000 - p).abs().max()))
    assert miss[0] == pytest.approx(0.3)
    assert miss[0] > miss[1] > miss[2]
    assert miss[3] < 0.01


@pytest.mark.slow
def test_overfitting_eight_rows_reproduces_them():
    torch.manual_seed(0)
    rows = torch.randint(2, 30, (8, 12), generator=torch.Generator().manual_seed(5))
    denoiser = Transformer(16, 64, 2, 4, mixing=(3, 2))
    model = DiffusionLM(30, TokenEmbedding(30, 16), LossCDFSchedule(-4, 8), denoiser, max_length=16, block_length=12)
    objective = CrossEntropy(LevelMixture([Together(), PerToken(), Staggered(0, 4)], [2, 1, 1]), next_token_weight=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids, start = rows.repeat(8, 1), torch.zeros(64, 1, dtype=torch.long)
    for step in range(500):
        index = torch.arange(64) + 64 * step
        batch = Batch(ids[:, :0], ids[:, None], start, torch.zeros(64, 1, 12, dtype=torch.bool), index)
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 20, max(0.02, (500 - step) / 250))
        optimizer.zero_grad()
        objective(model, batch, seed=0).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    table = torch.nn.functional.normalize(model.embedding.weight[2:], dim=-1)
    cosine = (table @ table.T)[~torch.eye(28, dtype=torch.bool)]
    assert cosine.mean() < 0.5 and cosine.max() < 0.95  # jointly trained embeddings did not collapse
    known = {tuple(row) for row in rows.tolist()}
    for stagger, steps in ((0.0, 16), (2.0, 64)):
        scheduler = Scheduler(model, DDIM(0.0), stagger=stagger)
        scheduler.set_timesteps(steps)
        z, carried = torch.randn(64, 12, 16, generator=torch.Generator().manual_seed(9)), None
        with torch.no_grad():
            for t in scheduler.timesteps:
                out = model.denoise(z, t, self_cond=carried, stagger=stagger)
                z, carried = scheduler.step(out, t, z)
        written = [tuple(row) for row in model.round(out).tolist()]
        assert sum(row in known for row in written) >= 0.95 * len(written)
        assert len(set(written) & known) >= 6  # and not one of them only
