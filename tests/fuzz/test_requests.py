"""Random requests: what must hold of every one of them. `make fuzz` runs all 400 seeds."""

import random
from typing import Any

import pytest
import torch

from celeris.data.tokenizers import CharTokenizer
from celeris.model import DiffusionLM
from celeris.sampling import (
    DDIM,
    Ancestral,
    Blank,
    DPMSolverPP2M,
    GenerateOutput,
    Heun,
    InfillOutput,
    Slide,
    generate,
    infill,
    stream,
)
from tests.core.small import small_model

SEEDS, CHUNK = 400, 20
LETTERS = "abcd .\n"
SOLVERS = [None, DDIM(0.5), DDIM(1.0), Heun(), DPMSolverPP2M(), Ancestral()]


@pytest.fixture(scope="module")
def model() -> DiffusionLM:
    tokenizer = CharTokenizer()([LETTERS])
    model = small_model(tokenizer.vocab_size, unk_id=tokenizer.unk_id, stagger=1.0)
    model.tokenizer = tokenizer
    model.rounding.prior.zero_()
    model.rounding.forbid(model.forbidden)
    return model


def text(rng: random.Random, most: int) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randint(0, most)))


def settings(rng: random.Random, seed: int) -> dict[str, Any]:
    return {
        "num_inference_steps": rng.choice([1, 2, 3, 5, None]),
        "temperature": rng.choice([0.0, 0.7, 1.0, 1.5]),
        "stagger": rng.choice([None, 0.0, 0.5]),
        "solver": rng.choice(SOLVERS),
        "guidance_scale": rng.choice([1.0, 1.0, 2.0]),
        "top_p": rng.choice([1.0, 0.9]),
        "seed": seed,
    }


def check_text(model: DiffusionLM, out: GenerateOutput) -> None:
    special = {model.pad_id, model.eos_id, model.unk_id}
    for ids, words in zip(out.sequences, out.texts, strict=True):
        assert not special & set(ids) and "<|" not in words and "\ufffd" not in words


def one_continuation(model: DiffusionLM, seed: int) -> None:
    rng = random.Random(seed)
    common = settings(rng, seed)
    most = rng.randint(1, 24)
    prompts: list = [text(rng, 12) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.3:
        prompts[0] = model.tokenizer.encode(prompts[0])
    common |= {
        "max_new_tokens": most,
        "min_new_tokens": rng.choice([0, 0, rng.randint(0, most)]),
        "block_length": rng.randint(1, 12),
        "stop": [text(rng, 2) or "a" for _ in range(rng.choice([0, 0, 1, 2]))],
    }
    if rng.random() < 0.2:
        common |= {"context_overflow": Slide(), "max_new_tokens": most + 64}
    samples = rng.randint(1, 2)
    out = generate(model, prompts, num_samples=samples, **common)
    check_text(model, out)
    for ids, words, reason, stop in zip(out.sequences, out.texts, out.finish_reasons, out.stops, strict=True):
        assert len(ids) <= common["max_new_tokens"] and not any(s in words for s in common["stop"])
        assert words == model.tokenizer.decode(ids)
        assert reason == ("stop" if stop or len(ids) < common["max_new_tokens"] else reason)
        assert stop or len(ids) >= common["min_new_tokens"]
    row = rng.randrange(len(out.texts))
    pieces = stream(model, [prompts[row // samples]], **(common | {"seed": seed + row}))
    assert "".join(piece.text for piece in pieces) == out.texts[row]  # alone as beside others, and in pieces
    one = pieces.output
    assert (one.sequences[0], one.slid[0]) == (out.sequences[row], out.slid[row])
    if common["guidance_scale"] == 1:  # guidance asks again for a batch as soon as one of its rows has context
        assert one.nfe[0] == out.nfe[row]
    assert generate(model, prompts, num_samples=samples, **common).texts == out.texts


def one_filling(model: DiffusionLM, seed: int) -> None:
    rng = random.Random(seed)
    common = settings(rng, seed)
    templates: list[list] = []
    for _ in range(rng.randint(1, 3)):
        blank = Blank(rng.randint(1, 4)) if rng.random() < 0.8 else Blank(1, rng.randint(1, 3))
        template = [blank, *(rng.choice([text(rng, 5), Blank(rng.randint(1, 4))]) for _ in range(rng.randint(0, 4)))]
        rng.shuffle(template)
        templates.append(template)
    out: InfillOutput = infill(model, templates, **common)
    check_text(model, out)
    for template, words, fillings, filled, reason in zip(
        templates, out.texts, out.fillings, out.filled, out.finish_reasons, strict=True
    ):
        left = iter(fillings)
        assert words == "".join(next(left) if isinstance(item, Blank) else item for item in template)
        blanks = [item for item in template if isinstance(item, Blank)]
        for blank, ids in zip(blanks, filled, strict=True):
            assert len(ids) <= blank.most and (len(ids) >= blank.shortest or reason == "stop")
    row = rng.randrange(len(templates))
    one = infill(model, [templates[row]], **(common | {"seed": seed + row}))
    assert one.sequences[0] == out.sequences[row] and infill(model, templates, **common).sequences == out.sequences


def commit_order(model: DiffusionLM, seed: int, temperature: float) -> list[int]:
    """Positions of a staggered canvas in the order in which they arrive at the data."""
    arrived: list[int] = []

    def watch(step) -> None:
        levels = model.gamma_at(step.t, 8, 3.0)
        clean = torch.isclose(levels, model.schedule.gamma(torch.zeros((), dtype=torch.float64)))
        arrived.extend(place for place in clean.nonzero()[:, 0].tolist() if place not in arrived)

    generate(
        model, [""], max_new_tokens=8, block_length=8, num_inference_steps=24, stagger=3.0, temperature=temperature,
        seed=seed, callback_on_step_end=watch,
    )  # fmt: skip
    return arrived


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_random_requests(model: DiffusionLM, first: int) -> None:
    for seed in range(first, first + CHUNK):
        (one_filling if seed % 4 == 3 else one_continuation)(model, seed)


def test_the_order_of_positions_does_not_depend_on_the_temperature(model: DiffusionLM) -> None:
    orders = {tuple(commit_order(model, 1, temperature)) for temperature in (0.0, 0.7, 1.0, 1.5)}
    (order,) = orders
    assert list(order) == sorted(order) and len(order) >= 6  # left before right


def test_a_few_requests(model: DiffusionLM) -> None:
    for seed in (3, 40):
        (one_filling if seed % 4 == 3 else one_continuation)(model, seed)
