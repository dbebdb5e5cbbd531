"""What an evaluation finds for the baselines: decoders whose keys name every choice, and a likelihood that is kept."""

from pathlib import Path

import pytest
import torch

from celeris.baselines import generate_llama, generate_masked, llama_nats
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.estimates import Asked, estimates
from celeris.evaluation.heldout import Likelihood
from celeris.evaluation.record import Subject
from celeris.evaluation.store import Store
from tests.baselines.small import LETTERS, small_llama, small_masked
from tests.evaluation.fakes import FakeData


def test_decoders_write_what_their_keys_say() -> None:
    choices = Choices(masked_steps=(2, 4), temperatures=(0.7, 1.0), autoregressive_temperatures=(0.5, 1.0))
    llama, masked = small_llama(), small_masked()
    found = {decoder.key: decoder for decoder in decoders(llama, choices)}
    assert list(found) == ["llama/t0.5", "llama/t1"]
    out = found["llama/t0.5"].generate(llama, ["ab"], num_samples=2, max_new_tokens=6, seed=3)
    assert out.sequences == generate_llama(llama, ["ab"] * 2, max_new_tokens=6, temperature=0.5, seed=3).sequences
    found = {decoder.key: decoder for decoder in decoders(masked, choices)}
    assert list(found) == [f"mdlm/steps_{steps}/t{t}" for t in ("0.7", "1") for steps in (2, 4)]
    other = Choices(masked_steps=(2,), temperatures=(0.7, 1.0), masked_temperatures=(0.9,))
    assert [decoder.key for decoder in decoders(masked, other)] == ["mdlm/steps_2/t0.9"]
    out = found["mdlm/steps_2/t0.7"].generate(masked, ["ab"], num_samples=1, max_new_tokens=6, seed=3)
    own = generate_masked(masked, ["ab"], max_new_tokens=6, num_inference_steps=2, temperature=0.7, seed=3)
    assert out.sequences == own.sequences and out.nfe[0] <= 2


@pytest.mark.parametrize("model", [small_llama(), small_masked()], ids=["llama", "mdlm"])
def test_a_likelihood_is_measured_once(model, tmp_path: Path) -> None:
    documents = [LETTERS * 12, LETTERS[::-1] * 9]
    data = FakeData(model.tokenizer, train_documents=documents, val_documents=documents)
    sections = []
    for seed in (1, 1, 2):
        store = Store(tmp_path)
        subject = Subject(model, data, model.tokenizer, seed, store=store)
        sections.append((Likelihood(rows=6, seeds=2, order=2)(subject).record, list(store.found)))
    (first, found_first), (second, found_second), (third, found_third) = sections
    assert not found_first and len(found_second) == 2 and found_third == ["likelihood of the n-grams"]
    assert second == first
    name = {"llama": "exact", "mdlm": "bound"}[model.system]
    assert first["headline"] == name == next(iter(first["results"]))
    assert (third["results"][name] == first["results"][name]) == (model.system == "llama")  # an exact value has no seed
    assert len(first["nats_per_token_by_seed"]) == {"llama": 0, "mdlm": 2}[model.system]


def test_the_exact_value_is_that_of_the_rows() -> None:
    model = small_llama()
    rows = torch.randint(3, 11, (6, 12), generator=torch.Generator().manual_seed(0))
    own = estimates(model, rows, Asked())["exact"]
    assert own.nats_per_token == pytest.approx(float(llama_nats(model, rows).sum()) / rows.numel())
    assert own.kind == "exact" and own.tokens == rows.numel() and own.rows == 6
