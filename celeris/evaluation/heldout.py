"""Likelihood of held-out text: the model's own exact value or bound, and n-gram yardsticks."""

import statistics
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from celeris.data.layouts import Documents, Responses
from celeris.errors import CelerisError
from celeris.evaluation.estimates import EXACT, UPPER_BOUND, Asked, Estimate, estimates, spaced_rows
from celeris.evaluation.ngram import InterpolatedNGram
from celeris.evaluation.plots import bars
from celeris.evaluation.record import Section, Subject, Table
from celeris.evaluation.samples import content_hash
from celeris.evaluation.units import NegativeLogLikelihood, TextSize, from_mean, text_size

UNIGRAM = "unigram"
ROOMS = (
    *("embedding", "noise", "denoiser", "rounding", "model.py", "language_model.py", "objectives", "baselines"),
    *(f"evaluation/{name}.py" for name in ("estimates", "likelihood", "bound", "clock", "ode", "integrators", "ngram")),
)
"""Code whose change makes kept likelihoods void."""

NGRAM = "Witten-Bell interpolated n-gram of the model's tokens, trained on the training rows"
UNIT = (
    "all tokens of the same held-out rows, each row from its own start, EOS scored and PAD not; characters and bytes "
    "are those of the decoded rows, in which EOS has none"
)
RESPONSES = "; of a row with a prompt the response alone, given the prompt"
FILLED = "; a bound includes what fills the block behind EOS, which counts as no token"


class Likelihood:
    """Bits per character of held-out rows.

    Args:
        rows: held-out rows measured, evenly spaced over all of them; None: all.
        samples: noise levels per row and block of a diffusion bound, each visited with eps and −eps.
        masked_samples: subsets of each row that a masked-diffusion bound masks.
        seeds: repeat a bound with this many seeds and report the spread.
        block_length: C of a diffusion bound; None: the model's own.
        batch_size: rows of one forward pass.
        order: of the n-gram yardstick.
        max_train_tokens: the yardsticks learn from the first rows up to this many tokens.
        ode_steps: steps of Heun's method along the probability-flow ODE of a diffusion, 128 for figures like LangFlow's
            (2604.11748); 0: not measured. A step costs two denoiser calls and their gradients.
        ode_rows: held-out rows the ODE is run on, evenly spaced over those of `rows`.
    """

    def __init__(
        self,
        rows: int | None = 256,
        samples: int = 2,
        masked_samples: int = 8,
        seeds: int = 1,
        block_length: int | None = None,
        batch_size: int = 32,
        order: int = 5,
        max_train_tokens: int = 20_000_000,
        ode_steps: int = 0,
        ode_rows: int = 32,
    ):
        counts = {"rows": rows, "samples": samples, "masked_samples": masked_samples, "seeds": seeds, "order": order}
        for name, value in {**counts, "ode_rows": ode_rows}.items():
            if value is not None and value < 1:
                raise CelerisError(f"{name}={value}; the likelihood needs at least 1.")
        if ode_steps < 0:
            raise CelerisError(f"ode_steps={ode_steps}; give the steps of the ODE, or 0 to leave it out.")
        self.rows, self.order, self.max_train_tokens = rows, order, max_train_tokens
        self.asked = Asked(0, seeds, samples, masked_samples, block_length, batch_size, ode_steps, ode_rows)

    def __call__(self, subject: Subject) -> Section:
        rows = spaced_rows(subject.data.val, self.rows)
        layout = self._layout(subject)
        scored = rows if layout is None else _scored(rows, layout, subject.tokenizer.pad_id)
        size = text_size(subject.tokenizer.decode(ids) for ids in scored.tolist())
        found = self._own(subject, rows, layout)
        headline, main = next(iter(found.items()))
        sizes = {name: size if own.rows == len(rows) else _size(subject, rows, own.rows) for name, own in found.items()}
        nats = {name: from_mean(own.nats_per_token, own.tokens, sizes[name]) for name, own in found.items()}
        errors = {
            name: from_mean(own.standard_error, own.tokens, sizes[name]).bits_per_character
            for name, own in found.items()
        }
        yardsticks, trained_on = self._yardsticks(subject, rows, scored, main.tokens, size)
        described = {name: (own.kind, own.definition) for name, own in found.items()}
        described |= {name: (EXACT, NGRAM) for name in yardsticks}
        nats |= yardsticks
        record: dict[str, Any] = {
            **subject.provenance(),
            "definitions": {name: text for name, (_, text) in described.items()} | {"unit": _unit(layout)},
            "headline": headline,
            "rows": len(rows),
            "rows_held_out": len(subject.data.val),
            "row_length": rows.shape[1],
            "tokenizer": subject.tokenizer.fingerprint,
            "layout": None if layout is None else repr(layout),
            "details": {name: own.details for name, own in found.items() if own.details},
            "seeds": len(main.by_seed) or None,
            "nats_per_token_by_seed": main.by_seed,
            "sd_over_seeds": statistics.stdev(main.by_seed) if len(main.by_seed) > 1 else None,
            "yardsticks_trained_on_tokens": trained_on,
            "results": {
                name: {
                    **nll.as_dict(),
                    "standard_error_bits_per_character": errors.get(name),
                    "kind": described[name][0],
                    "definition": described[name][1],
                }
                for name, nll in nats.items()
            },
        }
        return _section(record, found, nats, errors)

    def _layout(self, subject: Subject) -> Documents | None:
        """That of rows of which not everything is text to be predicted, with nothing dropped or given."""
        layout = getattr(subject.data, "bound_layout", None)
        if not isinstance(layout, Documents):
            return None
        length = self.asked.block_length
        if length is None:
            length = getattr(subject.model, "block_length", layout.block_length)
        return replace(layout, block_length=length, p_drop=0.0, p_given=0.0)

    def _own(self, subject: Subject, rows: Tensor, layout: Documents | None) -> dict[str, Estimate]:
        asked = replace(self.asked, seed=subject.seed, layout=layout)
        parameter = next(subject.model.parameters())
        key = {
            "weights": subject.model.weight_hash,
            "model": content_hash(subject.model.spec),
            "asked": asdict(asked),
            "precision": str(parameter.dtype),
            "device": parameter.device.type,
            **_text_key(subject, rows),
        }

        def make() -> dict[str, Any]:
            return {name: asdict(own) for name, own in estimates(subject.model, rows, asked).items()}

        kept = subject.store.get("likelihood", key, make, ROOMS, f"likelihood of {subject.model.system}")
        return {name: Estimate(**own) for name, own in kept.items()}

    def _yardsticks(
        self, subject: Subject, rows: Tensor, scored: Tensor, tokens: int, size: TextSize
    ) -> tuple[dict[str, NegativeLogLikelihood], int]:
        train, tokenizer = subject.data.train, subject.tokenizer
        orders = {f"{self.order}-gram": self.order, UNIGRAM: 1} if self.order > 1 else {UNIGRAM: 1}
        key = {"orders": orders, "max_train_tokens": self.max_train_tokens, **_text_key(subject, scored)}

        def make() -> dict[str, Any]:
            counted = scored.numpy() != tokenizer.pad_id
            stream = train[: max(1, self.max_train_tokens // rows.shape[1])].numpy()
            ngram = InterpolatedNGram(stream, self.order, tokenizer.vocab_size, tokenizer.pad_id)
            return {
                "nats": {name: float(ngram.nats(rows.numpy(), order, counted)) for name, order in orders.items()},
                "trained_on": int(ngram.tokens),
            }

        kept = subject.store.get("likelihood", key, make, ROOMS, "likelihood of the n-grams")
        found = {
            name: NegativeLogLikelihood(nats, tokens, size.characters, size.bytes)
            for name, nats in kept["nats"].items()
        }
        return found, kept["trained_on"]


def _scored(rows: Tensor, layout: Documents, pad_id: int) -> Tensor:
    """`rows` with PAD in place of what is only read."""
    return torch.where(torch.arange(rows.shape[1]) < layout.asked(rows)[:, None], pad_id, rows)


def _unit(layout: Documents | None) -> str:
    if layout is None:
        return UNIT
    return UNIT + RESPONSES * isinstance(layout, Responses) + FILLED


def _text_key(subject: Subject, rows: Tensor) -> dict[str, Any]:
    """What a kept likelihood says about the text it is of."""
    return {"data": subject.data.describe().get("fingerprint"), "rows": content_hash(rows.tolist())}


def _size(subject: Subject, rows: Tensor, count: int) -> TextSize:
    return text_size(subject.tokenizer.decode(ids) for ids in spaced_rows(rows, count).tolist())


def _section(
    record: dict[str, Any],
    found: dict[str, Estimate],
    nats: dict[str, NegativeLogLikelihood],
    errors: dict[str, float],
) -> Section:
    names = {name: found[name].label if name in found else f"yardstick: {name}" for name in nats}
    headline = record["headline"]
    notes = [f"{name}: {own.definition}." for name, own in found.items()]
    notes += [f"{name} = {own.note}." for name, own in found.items() if own.note]
    if record["sd_over_seeds"] is not None:
        notes.append(f"{headline}: sd over {record['seeds']} seeds {record['sd_over_seeds']:.4f} nats/token.")
    notes += [f"n-gram: {NGRAM}.", f"unit: {record['definitions']['unit']}."]
    table = Table(
        f"Likelihood: {record['rows']:,} of {record['rows_held_out']:,} held-out rows of {record['row_length']} tokens",
        ["", "bits/char", "± s.e.", "nats/token", "perplexity"],
        [
            [
                names[key],
                f"{nll.bits_per_character:.3f}",
                f"{errors[key]:.3f}" if key in errors else "–",
                f"{nll.nats_per_token:.3f}",
                f"{nll.perplexity:,.2f}",
            ]
            for key, nll in nats.items()
        ],
        notes,
    )
    others = "; ".join(
        f"{names[key].removeprefix('yardstick: ')} {nll.bits_per_character:.2f}"
        for key, nll in nats.items()
        if key != headline
    )
    most = "at most " if found[headline].kind == UPPER_BOUND else ""
    sentence = f"Held-out text costs {most}{nats[headline].bits_per_character:.3f} bits/character ({others})."
    scalars = {
        f"likelihood/{name.replace(' ', '_')}_bits_per_character": nll.bits_per_character for name, nll in nats.items()
    }
    scalars[f"likelihood/{headline}_nats_per_token"] = nats[headline].nats_per_token
    plot = bars(
        list(names.values()), [nll.bits_per_character for nll in nats.values()], "bits per character of held-out text"
    )
    return Section("Likelihood", record, [table], headline=[sentence], plots={"likelihood": plot}, scalars=scalars)
