"""Likelihood section and the metrics on a real (small, untrained) model."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.evaluation import estimates as room
from celeris.evaluation.estimates import diffusion_estimates, estimates, spaced_rows
from celeris.evaluation.heldout import Likelihood
from celeris.evaluation.likelihood import BoundReport
from celeris.evaluation.ngram import InterpolatedNGram
from celeris.evaluation.prompted import DenoisingLoss, Prompted
from celeris.evaluation.quality import Quality
from celeris.evaluation.run import evaluate
from celeris.evaluation.speed import Speed
from celeris.sampling.solvers import DDIM, Heun
from tests.baselines.small import LETTERS, small_llama, small_masked
from tests.core.small import small_model

from .fakes import PROSE, FakeData, FakeModel, FakeScorer, character_tokenizer, subject

estimates.register(FakeModel, diffusion_estimates)


@pytest.fixture
def model():
    tokenizer = character_tokenizer()
    model = small_model(tokenizer.vocab_size, max_length=32, block_length=8)
    model.tokenizer = tokenizer
    return model.eval()


def test_units_and_yardsticks_are_taken_over_the_same_text(monkeypatch: pytest.MonkeyPatch):
    """A bound of 2 nats on every token; the n-grams trained and read as the metric says, with EOS scored."""
    seen: list[tuple[Tensor, dict]] = []

    def bound(model, rows: Tensor, **arguments) -> BoundReport:
        seen.append((rows, arguments))
        return BoundReport(2.0 + 0.1 * arguments["seed"], 0.01, 1.5, 0.4, 0.1, rows.numel(), 8, 0.0, 4)

    monkeypatch.setattr(room, "variational_bound", bound)
    about = subject(val_documents=[PROSE[:40], PROSE[40:200]])
    section = Likelihood(rows=None, order=3, seeds=2)(about)
    rows = about.data.val
    assert torch.equal(seen[0][0], rows)
    assert [arguments["seed"] for _, arguments in seen] == [5, 6]
    results = section.record["results"]
    ends = int((rows == about.tokenizer.eos_id).sum())
    assert ends > 0
    assert results["bound"]["nats_per_token"] == pytest.approx(2.55)  # mean over seeds 5 and 6
    assert section.record["sd_over_seeds"] == pytest.approx(0.1 / math.sqrt(2))
    assert results["bound"]["tokens"] == rows.numel()
    assert results["bound"]["characters"] == rows.numel() - ends
    assert results["bound"]["bits_per_character"] == pytest.approx(
        2.55 * rows.numel() / (rows.numel() - ends) / math.log(2)
    )
    ngram = InterpolatedNGram(about.data.train.numpy(), 3, about.tokenizer.vocab_size, about.tokenizer.pad_id)
    assert results["3-gram"]["nats"] == pytest.approx(ngram.nats(rows.numpy()))
    assert results["unigram"]["nats"] == pytest.approx(ngram.nats(rows.numpy(), 1))
    assert "next token" not in results  # the model has no such head
    kinds = {name: result["kind"] for name, result in results.items()}
    assert kinds == {"bound": "upper bound", "3-gram": "exact", "unigram": "exact"}
    assert section.record["headline"] == "bound" and "at most" in section.headline[0]
    assert "2.5" not in section.headline[0] and "bits/character" in section.headline[0]


def test_rows_are_spaced_evenly():
    rows = torch.arange(20).view(10, 2)
    assert spaced_rows(rows, 3)[:, 0].tolist() == [0, 6, 12]
    assert torch.equal(spaced_rows(rows, None), rows)
    assert torch.equal(spaced_rows(rows, 50), rows)
    with pytest.raises(CelerisError, match="no held-out rows"):
        spaced_rows(rows[:0], 3)
    with pytest.raises(CelerisError, match="rows=0"):
        Likelihood(rows=0)


def test_all_metrics_on_a_real_model(model, tmp_path: Path):
    """Same seed, same report; every section has figures; the files are written."""
    metrics = {
        "likelihood": Likelihood(rows=4, samples=1, order=3),
        "quality": Quality(
            FakeScorer(), num_inference_steps=[1, 2], solvers={"a": DDIM(), "b": Heun()}, num_samples=2, length=12
        ),
        "prompted": Prompted(pairs=3, levels=2),
        "speed": Speed(num_inference_steps=[1], batch_sizes=[2], length=8, repeats=1),
    }
    data = FakeData(model.tokenizer, length=32)
    report = evaluate(model, data, metrics, seed=3, output_dir=tmp_path)
    record = json.loads((tmp_path / "report.json").read_text())["metrics"]
    results = record["likelihood"]["results"]
    assert list(results) == ["bound", "next token", "3-gram", "unigram"]
    assert all(result["bits_per_character"] > 0 for result in results.values())
    *diffusion, token_by_token = record["quality"]["settings"]
    assert [s["solver"] for s in diffusion] == ["DDIM(eta=0)"] * 2 + ["Heun()"] * 2
    assert [s["num_inference_steps"] for s in diffusion] == [1, 2, 1, 2]
    assert token_by_token["key"] == "celeris/next_token/t1" and token_by_token["temperature"] == 1.0
    assert record["prompted"]["pairs"] == 3
    assert [s["key"] for s in record["speed"]["settings"]] == ["celeris/steps_1/eta_1/t0.7", "celeris/next_token/t1"]
    assert "next token" in report.to_markdown()
    again = evaluate(model, data, {k: metrics[k] for k in ("likelihood", "prompted")}, seed=3)
    for name, section in again.sections.items():
        assert json.loads(json.dumps(section.record)) == record[name]
    other = evaluate(model, data, {"likelihood": metrics["likelihood"]}, seed=4)
    assert other.sections["likelihood"].record["results"]["bound"] != results["bound"]
    assert other.sections["likelihood"].record["results"]["next token"] == results["next token"]


@pytest.mark.parametrize("make", [small_llama, small_masked])
def test_the_same_metrics_measure_a_baseline(make, tmp_path: Path):
    """Another likelihood, other decoders; nothing else of a report depends on the kind of model."""
    model = make()
    metrics = {
        "likelihood": Likelihood(rows=4, order=3),
        "quality": Quality(FakeScorer(), masked_steps=[2, 4], num_samples=2, length=12),
        "speed": Speed(masked_steps=[2, 4], batch_sizes=[2], length=8, repeats=1),
    }
    texts = [LETTERS * 30]
    data = FakeData(model.tokenizer, train_documents=texts, val_documents=texts)
    evaluate(model, data, metrics, seed=3, output_dir=tmp_path)
    record = json.loads((tmp_path / "report.json").read_text())["metrics"]
    results = record["likelihood"]["results"]
    headline = {"llama": "exact", "mdlm": "bound"}[model.system]
    assert list(results) == [headline, "3-gram", "unigram"] and record["likelihood"]["headline"] == headline
    keys = {"llama": ["llama/t1"], "mdlm": ["mdlm/steps_2/t0.7", "mdlm/steps_4/t0.7"]}[model.system]
    assert [s["key"] for s in record["quality"]["settings"]] == keys
    assert [s["key"] for s in record["speed"]["settings"]] == keys


def test_denoising_loss_does_not_depend_on_the_batch_and_reads_the_prompt(model):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # an untrained model ignores its context: shake it
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    prompts = torch.randint(3, 20, (5, 16), generator=generator)
    continuations = torch.randint(3, 20, (5, 16), generator=generator)
    whole = DenoisingLoss(model, 8, levels=2, seed=0)(prompts, continuations)
    split = DenoisingLoss(model, 8, levels=2, seed=0, batch_size=2)(prompts, continuations)
    np.testing.assert_allclose(whole.numpy(), split.numpy(), rtol=1e-5)
    assert whole.shape == (5,)
    other = DenoisingLoss(model, 8, levels=2, seed=0)(prompts.flip(0), continuations)
    assert not torch.allclose(whole, other)
    assert torch.equal(DenoisingLoss(model, 8, levels=2, seed=0)(prompts, continuations), whole)
