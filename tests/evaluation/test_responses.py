"""Likelihood of responses given their prompts, and of documents with an end."""

import math
from pathlib import Path

import pytest
import torch

from celeris.data.layouts import Documents, Responses
from celeris.errors import CelerisError
from celeris.evaluation.estimates import Asked, estimates
from celeris.evaluation.heldout import Likelihood
from celeris.evaluation.likelihood import next_token_nll, variational_bound
from celeris.evaluation.ngram import InterpolatedNGram
from celeris.evaluation.record import Subject
from celeris.evaluation.store import Store
from celeris.model import DiffusionLM
from tests.core.small import small_model
from tests.data.test_data_pairs import ASSISTANT, EOS, PAD, PAIRS, USER, questions, rows_of

RESPONSES = Responses(8, assistant_id=ASSISTANT, eos_id=EOS)


def talker(vocab_size: int = 13) -> DiffusionLM:
    return small_model(vocab_size, eos_id=EOS, role_ids=[2, USER, ASSISTANT])


def test_rows_without_prompt_or_end_cost_what_they_did() -> None:
    rows, model = torch.arange(96).view(3, 32) % 8 + 5, talker()
    plain, documents, responses = (
        variational_bound(model, rows, samples=2, layout=layout)
        for layout in (None, Documents(8, eos_id=EOS), RESPONSES)
    )
    assert plain == documents == responses
    assert next_token_nll(model, rows) == next_token_nll(model, rows, layout=RESPONSES)


def test_a_prompt_costs_nothing_and_is_read() -> None:
    model, rows = talker(), rows_of((3, 5), (10, 12), (1, 7), (2, 8))
    tokens = 5 + 12 + 7 + 8 + 4  # with EOS
    bound = variational_bound(model, rows, layout=RESPONSES)
    head = next_token_nll(model, rows, layout=RESPONSES)
    assert bound.tokens == head.tokens == tokens
    assert 0 < head.nats_per_token < 100 and 0 < bound.nats_per_token < 100
    assert next_token_nll(model, rows).nats_per_token > 1e6  # roles are never written: what this is here to avoid
    other = rows.clone()
    other[:, 1] = (other[:, 1] - 5 + 1) % 7 + 5
    assert variational_bound(model, other, layout=RESPONSES).nats_per_token != bound.nats_per_token
    one = variational_bound(model, rows, layout=RESPONSES, batch_size=1)
    assert one.nats_per_token == pytest.approx(bound.nats_per_token, rel=1e-5)


def test_the_next_token_figure_by_hand() -> None:
    model, rows = talker(), rows_of((3, 5))
    n = int((rows != PAD).sum())
    with torch.no_grad():
        log_p = torch.log_softmax(model.next_token_logits(model.encode_context(rows[:, :n])), -1)
    own = log_p[0, 4 : n - 1].gather(-1, rows[0, 5:n, None])  # <|user|>, 3 tokens, <|assistant|>: 5 are read
    assert next_token_nll(model, rows, layout=RESPONSES).nats_per_token == pytest.approx(-float(own.mean()), rel=1e-5)


def test_the_metric_measures_responses_and_says_so(tmp_path: Path) -> None:
    data = questions(tmp_path, layout=Responses(8, p_drop=0.5, p_given=0.5))
    model = talker(data.tokenizer.vocab_size)
    model.role_ids, model.tokenizer = data.tokenizer.role_ids, data.tokenizer
    section = Likelihood(rows=12, order=3)(Subject(model, data, data.tokenizer, 0, False, Store()))
    results = section.record["results"]
    tokens = sum(len(PAIRS[k * 40 // 12].response) + 1 for k in range(12))
    assert set(results) == {"bound", "next token", "3-gram", "unigram"}
    assert {found["tokens"] for found in results.values()} == {tokens}
    assert all(0 < found["nats_per_token"] < 100 for found in results.values())
    assert results["bound"]["characters"] == tokens - 12
    assert "response alone" in section.record["definitions"]["unit"]


def test_an_ngram_counts_what_it_is_told_to() -> None:
    rows = rows_of((3, 5), (4, 2)).numpy()
    ngram, real = InterpolatedNGram(rows, 3, 13, PAD), rows != PAD
    assert ngram.nats(rows, 3, real) == pytest.approx(ngram.nats(rows, 3))
    some = real.copy()
    some[:, 4:] = False
    assert ngram.nats(rows, 3, some) + ngram.nats(rows, 3, real & ~some) == pytest.approx(ngram.nats(rows, 3))


def test_what_is_not_known_is_refused() -> None:
    rows = rows_of((3, 5))
    with pytest.raises(CelerisError, match="whole rows alone"):
        estimates(talker(), rows, Asked(ode_steps=4, layout=RESPONSES))
    from celeris.baselines import MaskedLM

    masked = MaskedLM(vocab_size=13, max_length=64, width=16, depth=1, heads=2)
    with pytest.raises(CelerisError, match="not known for a MaskedLM"):
        estimates(masked, rows, Asked(layout=RESPONSES))
    assert math.isfinite(estimates(masked, rows, Asked(masked_samples=1))["bound"].nats_per_token)
