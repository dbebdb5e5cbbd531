"""Likelihood of held-out text: the bound, the next-token head of the same weights, and n-gram yardsticks."""

import statistics
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.evaluation.integrators import Heun
from celeris.evaluation.likelihood import next_token_nll, variational_bound
from celeris.evaluation.ngram import InterpolatedNGram
from celeris.evaluation.ode import flow_likelihood
from celeris.evaluation.plots import bars
from celeris.evaluation.record import Section, Subject, Table
from celeris.evaluation.units import NegativeLogLikelihood, TextSize, from_mean, text_size

BOUND, TOGETHER, FLOW, NEXT_TOKEN, UNIGRAM = (
    "bound",
    "bound, together",
    "probability-flow ODE",
    "next token",
    "unigram",
)
DEFINITIONS = {
    BOUND: "variational upper bound on -log p of each row, block by block given the clean blocks before",
    TOGETHER: "the same bound when all positions of a block move together (stagger 0)",
    FLOW: "upper bound in expectation on -log p under the deterministic flow of the same denoiser (stagger 0): "
    "log q(z_0|x0) - log p(z_0) - log p(tokens|z_0), the divergence by Hutchinson's estimator; its own, smaller set of "
    "rows",
    NEXT_TOKEN: "exact -log p under the next-token head of the same weights; a row's first token by the unigram",
    "n-gram": "Witten-Bell interpolated n-gram of the model's tokens, trained on the training rows",
    "unit": "all tokens of the same held-out rows, each row from its own start, EOS scored and PAD not; characters and "
    "bytes are those of the decoded rows, in which EOS has none",
}


class Likelihood:
    """Bits per character of held-out rows.

    Args:
        rows: held-out rows measured, evenly spaced over all of them; None: all.
        samples: noise levels per row and block of the bound's estimate, each visited with eps and −eps.
        seeds: repeat the bound with this many seeds and report the spread.
        block_length: C of the bound; None: the model's own.
        batch_size: rows of one forward pass.
        order: of the n-gram yardstick.
        max_train_tokens: the yardsticks learn from the first rows up to this many tokens.
        ode_steps: steps of Heun's method along the probability-flow ODE, 128 for figures like LangFlow's (2604.11748);
            0: not measured. A step costs two denoiser calls and their gradients.
        ode_rows: held-out rows the ODE is run on, spaced like `rows`.
    """

    def __init__(
        self,
        rows: int | None = 256,
        samples: int = 2,
        seeds: int = 1,
        block_length: int | None = None,
        batch_size: int = 32,
        order: int = 5,
        max_train_tokens: int = 20_000_000,
        ode_steps: int = 0,
        ode_rows: int = 32,
    ):
        counts = {"rows": rows, "samples": samples, "seeds": seeds, "order": order, "ode_rows": ode_rows}
        for name, value in counts.items():
            if value is not None and value < 1:
                raise CelerisError(f"{name}={value}; the likelihood needs at least 1.")
        if ode_steps < 0:
            raise CelerisError(f"ode_steps={ode_steps}; give the steps of the ODE, or 0 to leave it out.")
        self.rows = rows
        self.samples = samples
        self.seeds = seeds
        self.block_length = block_length
        self.batch_size = batch_size
        self.order = order
        self.max_train_tokens = max_train_tokens
        self.ode_steps = ode_steps
        self.ode_rows = ode_rows

    def __call__(self, subject: Subject) -> Section:
        model, held_out = subject.model, subject.data.val
        rows = spaced_rows(held_out, self.rows)
        size = text_size(subject.tokenizer.decode(ids) for ids in rows.tolist())
        bound = partial(
            variational_bound,
            model,
            rows,
            block_length=self.block_length,
            samples=self.samples,
            batch_size=self.batch_size,
        )
        runs = [bound(seed=subject.seed + k) for k in range(self.seeds)]
        means = [run.nats_per_token for run in runs]
        tokens = runs[0].tokens
        found = {BOUND: from_mean(statistics.fmean(means), tokens, size)}
        errors = {BOUND: runs[0].standard_error * _bits(tokens, size)}
        if model.stagger > 0:
            together = bound(seed=subject.seed, stagger=0.0)
            found[TOGETHER] = from_mean(together.nats_per_token, together.tokens, size)
            errors[TOGETHER] = together.standard_error * _bits(tokens, size)
        flow = None
        if self.ode_steps:
            some = spaced_rows(held_out, min(self.ode_rows, len(rows)))
            text = text_size(subject.tokenizer.decode(ids) for ids in some.tolist())
            flow = flow_likelihood(
                model,
                some,
                integrator=Heun(self.ode_steps),
                block_length=self.block_length,
                seed=subject.seed,
                batch_size=self.batch_size,
            )
            found[FLOW] = from_mean(flow.nats_per_token, flow.tokens, text)
            errors[FLOW] = flow.standard_error * _bits(flow.tokens, text)
        if model.has_next_token_head:
            head = next_token_nll(model, rows, batch_size=self.batch_size)
            found[NEXT_TOKEN] = from_mean(head.nats_per_token, head.tokens, size)
            errors[NEXT_TOKEN] = head.standard_error * _bits(tokens, size)
        yardsticks, trained_on = self._yardsticks(subject, rows, tokens, size)
        found |= yardsticks
        record: dict[str, Any] = {
            **subject.provenance(),
            "definitions": DEFINITIONS,
            "rows": len(rows),
            "rows_held_out": len(held_out),
            "row_length": rows.shape[1],
            "tokenizer": subject.tokenizer.fingerprint,
            "bound": asdict(runs[0]),
            **({} if flow is None else {"flow": {**asdict(flow), "rows": len(some), "steps": self.ode_steps}}),
            "seeds": self.seeds,
            "bound_nats_per_token_by_seed": means,
            "bound_sd_over_seeds": statistics.stdev(means) if len(means) > 1 else None,
            "yardsticks_trained_on_tokens": trained_on,
            "results": {
                name: {**nll.as_dict(), "standard_error_bits_per_character": errors.get(name)}
                for name, nll in found.items()
            },
        }
        return _section(record, found, errors)

    def _yardsticks(
        self, subject: Subject, rows: Tensor, tokens: int, size: TextSize
    ) -> tuple[dict[str, NegativeLogLikelihood], int]:
        train, tokenizer = subject.data.train, subject.tokenizer
        stream = train[: max(1, self.max_train_tokens // rows.shape[1])].numpy()
        ngram = InterpolatedNGram(stream, self.order, tokenizer.vocab_size, tokenizer.pad_id)
        orders = {f"{self.order}-gram": self.order, UNIGRAM: 1} if self.order > 1 else {UNIGRAM: 1}
        found = {
            name: NegativeLogLikelihood(ngram.nats(rows.numpy(), order), tokens, size.characters, size.bytes)
            for name, order in orders.items()
        }
        return found, ngram.tokens


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


def _bits(tokens: int, size: TextSize) -> float:
    """bits/character of one nat/token."""
    return from_mean(1.0, tokens, size).bits_per_character


def _section(record: dict[str, Any], found: dict[str, NegativeLogLikelihood], errors: dict[str, float]) -> Section:
    parts = record["bound"]
    labels = {
        BOUND: "this model, upper bound",
        TOGETHER: "… all positions of a block together",
        FLOW: "… its probability-flow ODE",
        NEXT_TOKEN: "its next-token head",
    }
    names = [labels.get(name, f"yardstick: {name}") for name in found]
    spread = record["bound_sd_over_seeds"]
    notes = [f"{name}: {text}." for name, text in DEFINITIONS.items() if name != FLOW or name in found]
    notes.append(
        f"bound = {parts['diffusion']:.3f} diffusion + {parts['reconstruction']:.3f} reconstruction + "
        f"{parts['prior']:.3f} prior nats/token; blocks of {parts['block_length']}, stagger {parts['stagger']:g}, "
        f"{parts['samples']} levels a block, each with eps and −eps"
        + ("." if spread is None else f"; sd over {record['seeds']} seeds {spread:.4f} nats/token.")
    )
    if (flow := record.get("flow")) is not None:
        notes.append(
            f"{FLOW} = {flow['latent']:.3f} latent + {flow['reconstruction']:.3f} reconstruction nats/token on "
            f"{flow['rows']} rows; Heun, {flow['steps']} steps, {flow['probes']} probe a step."
        )
    table = Table(
        f"Likelihood: {record['rows']:,} of {record['rows_held_out']:,} held-out rows of {record['row_length']} tokens",
        ["", "bits/char", "± s.e.", "nats/token", "perplexity"],
        [
            [
                name,
                f"{nll.bits_per_character:.3f}",
                f"{errors[key]:.3f}" if key in errors else "–",
                f"{nll.nats_per_token:.3f}",
                f"{nll.perplexity:,.2f}",
            ]
            for name, (key, nll) in zip(names, found.items(), strict=True)
        ],
        notes,
    )
    others = "; ".join(
        f"{name.removeprefix('yardstick: ')} {nll.bits_per_character:.2f}"
        for name, nll in zip(names[1:], list(found.values())[1:], strict=True)
    )
    sentence = f"Held-out text costs at most {found[BOUND].bits_per_character:.3f} bits/character ({others})."
    scalars = {
        f"likelihood/{name.replace(' ', '_')}_bits_per_character": nll.bits_per_character for name, nll in found.items()
    }
    scalars["likelihood/bound_nats_per_token"] = found[BOUND].nats_per_token
    plot = bars(names, [nll.bits_per_character for nll in found.values()], "bits per character of held-out text")
    return Section("Likelihood", record, [table], headline=[sentence], plots={"likelihood": plot}, scalars=scalars)
