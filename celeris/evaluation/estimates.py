"""What each kind of model can say about −log p of given rows: an exact value, or an upper bound."""

import statistics
from dataclasses import asdict, dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from celeris.baselines import Llama, MaskedLM, llama_nats, masked_bound
from celeris.data.layouts import Documents, Responses
from celeris.errors import CelerisError
from celeris.evaluation.integrators import Heun
from celeris.evaluation.likelihood import BoundReport, next_token_nll, standard_error, variational_bound
from celeris.evaluation.ode import flow_likelihood
from celeris.model import DiffusionLM

EXACT, UPPER_BOUND = "exact", "upper bound"

BOUND, TOGETHER, FLOW, NEXT_TOKEN, OWN = "bound", "bound, together", "probability-flow ODE", "next token", "exact"
"""Names of results in every report."""


@dataclass(frozen=True)
class Asked:
    """How carefully to measure.

    Attributes:
        seed: of the first estimate; later ones count on.
        seeds: estimates of what is random, for their spread.
        samples: noise levels per row and block of a diffusion bound, each visited with eps and −eps.
        masked_samples: subsets of each row of a masked-diffusion bound.
        block_length: C of a diffusion bound; None: the model's own.
        batch_size: rows of one forward pass.
        ode_steps, ode_rows: of the probability-flow ODE; 0 steps: not measured.
        layout: what of each row is measured (`variational_bound`).
    """

    seed: int = 0
    seeds: int = 1
    samples: int = 2
    masked_samples: int = 8
    block_length: int | None = None
    batch_size: int = 32
    ode_steps: int = 0
    ode_rows: int = 32
    layout: Documents | None = None


@dataclass(frozen=True)
class Estimate:
    """−log p of some rows, in plain JSON values.

    Attributes:
        nats_per_token, tokens: mean, and what it was taken over.
        standard_error: of the mean, over rows, in nats per token.
        rows: how many of the rows given, evenly spaced.
        kind: "exact" or "upper bound".
        label: in the report's table.
        definition: what was computed.
        by_seed: the means whose mean this is.
        details: what it is made of.
        note: the details in words.
    """

    nats_per_token: float
    tokens: int
    standard_error: float
    rows: int
    kind: str
    label: str
    definition: str
    by_seed: list[float] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    note: str = ""


@singledispatch
def estimates(model: Any, rows: Tensor, asked: Asked) -> dict[str, Estimate]:
    """Every estimate of −log p of `rows` (n, L) that this kind of model has; the first one stands for it.

    Raises:
        CelerisError: nothing is registered for this kind of model.
    """
    raise CelerisError(f"No likelihood is known for a {type(model).__name__}; register one with estimates.register.")


@estimates.register
def diffusion_estimates(model: DiffusionLM, rows: Tensor, asked: Asked) -> dict[str, Estimate]:
    """The variational bound, the same with all positions together, the ODE where asked for, and the next-token head."""

    def bound(seed: int, stagger: float | None = None) -> BoundReport:
        return variational_bound(
            model,
            rows,
            stagger=stagger,
            seed=seed,
            block_length=asked.block_length,
            samples=asked.samples,
            batch_size=asked.batch_size,
            layout=asked.layout,
        )

    def estimate(run: BoundReport, label: str, definition: str, by_seed: list[float]) -> Estimate:
        note = (
            f"{run.diffusion:.3f} diffusion + {run.reconstruction:.3f} reconstruction + {run.prior:.3f} prior "
            f"nats/token; blocks of {run.block_length}, stagger {run.stagger:g}, {run.samples} levels a block, each "
            "with eps and −eps"
        )
        return Estimate(
            statistics.fmean(by_seed), run.tokens, run.standard_error, len(rows), UPPER_BOUND, label, definition,
            by_seed, asdict(run), note,
        )  # fmt: skip

    if asked.ode_steps and asked.layout is not None:
        raise CelerisError(
            f"ode_steps={asked.ode_steps}: the ODE is known for whole rows alone, not for {asked.layout!r}; set it to "
            "0."
        )
    runs = [bound(asked.seed + k) for k in range(asked.seeds)]
    found = {
        BOUND: estimate(
            runs[0],
            "this model, upper bound",
            "variational upper bound on -log p of each row, block by block given the clean blocks before",
            [run.nats_per_token for run in runs],
        )
    }
    if model.stagger > 0:
        together = bound(asked.seed, 0.0)
        found[TOGETHER] = estimate(
            together,
            "… all positions of a block together",
            "the same bound when all positions of a block move together (stagger 0)",
            [together.nats_per_token],
        )
    if asked.ode_steps:
        found[FLOW] = _flow(model, rows, asked)
    if model.has_next_token_head:
        head = next_token_nll(model, rows, batch_size=asked.batch_size, layout=asked.layout)
        found[NEXT_TOKEN] = Estimate(
            head.nats_per_token,
            head.tokens,
            head.standard_error,
            len(rows),
            EXACT,
            "its next-token head",
            "exact -log p under the next-token head of the same weights; a row's first token by the unigram",
        )
    return found


@estimates.register
def _(model: Llama, rows: Tensor, asked: Asked) -> dict[str, Estimate]:
    _whole_rows(model, asked)
    definition = "exact -log p of each row, token by token, its first one given the start token (PAD)"
    nats = llama_nats(model, rows, batch_size=asked.batch_size)
    return {OWN: _of_rows([nats], rows != model.pad_id, EXACT, "this model, exact", definition)}


@estimates.register
def _(model: MaskedLM, rows: Tensor, asked: Asked) -> dict[str, Estimate]:
    _whole_rows(model, asked)
    runs = [
        masked_bound(
            model, rows, samples=asked.masked_samples, seed=asked.seed + k, batch_size=asked.batch_size
        )
        for k in range(asked.seeds)
    ]  # fmt: skip
    definition = (
        "upper bound on -log p of each row: the mean over n = 1 … L of L/n times -log p of n masked tokens given the "
        "rest, the n at random (the continuous-time bound of masked diffusion)"
    )
    note = f"{asked.masked_samples} subsets of each row"
    return {BOUND: _of_rows(runs, rows != model.pad_id, UPPER_BOUND, "this model, upper bound", definition, note)}


def _whole_rows(model: Any, asked: Asked) -> None:
    if isinstance(asked.layout, Responses):
        raise CelerisError(
            f"The likelihood of responses given their prompts is not known for a {type(model).__name__}; leave "
            "likelihood out of metrics=."
        )


def _of_rows(runs: list[Tensor], real: Tensor, kind: str, label: str, definition: str, note: str = "") -> Estimate:
    """From −log p of each row, once for each seed."""
    counts = real.sum(1).double()
    means = [float(nats.sum() / counts.sum()) for nats in runs]
    return Estimate(
        statistics.fmean(means), int(counts.sum()), standard_error(runs[0], counts), len(counts), kind, label,
        definition, means if kind == UPPER_BOUND else [], note=note,
    )  # fmt: skip


def _flow(model: DiffusionLM, rows: Tensor, asked: Asked) -> Estimate:
    some = spaced_rows(rows, asked.ode_rows)
    flow = flow_likelihood(
        model,
        some,
        integrator=Heun(asked.ode_steps),
        block_length=asked.block_length,
        seed=asked.seed,
        batch_size=asked.batch_size,
    )
    return Estimate(
        flow.nats_per_token,
        flow.tokens,
        flow.standard_error,
        len(some),
        UPPER_BOUND,
        "… its probability-flow ODE",
        "upper bound in expectation on -log p under the deterministic flow of the same denoiser (stagger 0): "
        "log q(z_0|x0) - log p(z_0) - log p(tokens|z_0), the divergence by Hutchinson's estimator; its own, smaller "
        "set of rows",
        details={**asdict(flow), "rows": len(some), "steps": asked.ode_steps},
        note=f"{flow.latent:.3f} latent + {flow.reconstruction:.3f} reconstruction nats/token on {len(some)} rows; "
        f"Heun, {asked.ode_steps} steps, {flow.probes} probe a step",
    )


def spaced_rows(rows: Any, count: int | None) -> Tensor:
    """(n, L) int64: `count` rows evenly spaced over `rows` (anything with len and indexing), or all of them.

    Raises:
        CelerisError: there are none.
    """
    total = len(rows)
    if total == 0:
        raise CelerisError("There are no held-out rows to measure; give the data a held-out part.")
    if count is None or count >= total:
        return rows[:]
    return torch.as_tensor(rows[np.arange(count) * total // count])
