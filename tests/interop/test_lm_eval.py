"""lm-eval drives a model of this package."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from celeris.baselines.llama import Llama
from celeris.errors import CelerisError
from celeris.interop import lm_eval as adapter
from celeris.interop.pieces import cut_at, end_of, pair_of, stop_strings, windows_of
from celeris.tokenizer import TextTokenizer, character_backend
from tests.core.small import small_model

LETTERS = " abcdefghi"


def tokenizer() -> TextTokenizer:
    return TextTokenizer(character_backend(list(LETTERS)), 0, 1, 2)


def model():
    made = small_model(unk_id=2)
    made.tokenizer = tokenizer()
    return made


def requests(*arguments: tuple) -> list[Any]:
    return [SimpleNamespace(args=words) for words in arguments]


def harness(**options: Any) -> adapter.Requests:
    return adapter.Requests(model(), **{"num_inference_steps": 2, "max_gen_toks": 16, **options})


# -- pieces -----------------------------------------------------------------------------------------------------------


def test_texts_are_cut_to_the_window_from_the_left() -> None:
    assert end_of(tokenizer(), "abcdef", 4) == "cdef" and end_of(tokenizer(), "ab", 4) == "ab"
    pair, cut = pair_of(tokenizer(), "abcdef ", "gh", 5)
    assert cut and tokenizer().decode(pair.context) == "ef" and tokenizer().decode(pair.continuation) == " gh"
    assert not pair_of(tokenizer(), "", "gh", 5)[1]
    with pytest.raises(CelerisError, match="6 tokens and the window 5"):
        pair_of(tokenizer(), "", "abcdef", 5)
    with pytest.raises(CelerisError, match="empty"):
        pair_of(tokenizer(), "abc", "", 5)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 12, 13, 30])
def test_windows_have_each_token_once_and_none_is_too_long(length: int) -> None:
    parts = list(windows_of(list(range(length)), 8))
    assert [token for part in parts for token in part.continuation] == list(range(length))
    assert all(len(part.context) + len(part.continuation) <= 8 for part in parts)
    assert all(part.context == list(range(part.continuation[0] - 4, part.continuation[0])) for part in parts[1:])


def test_the_first_stop_string_cuts() -> None:
    assert cut_at("ab cd ef", ["ef", "cd"]) == "ab " and cut_at("abc", ["x"]) == "abc" and cut_at("abc", []) == "abc"
    assert stop_strings("a") == ["a"] and stop_strings(["", "b"]) == ["b"] and stop_strings(None) == []


# -- requests ---------------------------------------------------------------------------------------------------------


def test_answers_come_in_order_and_do_not_depend_on_batches() -> None:
    asked = requests(*((text, {"until": []}) for text in ("a", "bc", "", "abcdefgh", "i")))
    alone, together = harness(batch_size=1).generate_until(asked), harness(batch_size=4).generate_until(asked)
    assert alone == together and len(set(alone)) > 1
    third = harness(seed=2).generate_until(asked[2:3])
    assert third == together[2:3]  # request k is written with seed + k
    stop = together[0][5]
    (cut,) = harness().generate_until(requests(("a", {"until": [stop]})))
    assert cut == together[0][: together[0].index(stop)]


def test_what_did_not_go_as_asked_is_counted_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    lm = harness()
    options = {"until": ["x"], "max_gen_toks": 500, "do_sample": False}
    (text,) = lm.generate_until(requests(("ab" * 40, options)))
    assert len(text) <= 32 and lm.report["prompts_cut"] == 1 and lm.report["outputs_shortened"] == 1
    said = capsys.readouterr().err
    assert "do_sample of the task not heeded" in said and "cut on the left (1 so far)" in said and "32 tokens" in said


def test_a_bound_is_given_only_when_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    asked = requests(("ab", " cd"), ("", "a"))
    for call in (harness().loglikelihood, harness().loglikelihood_rolling):
        with pytest.raises(CelerisError, match="approximate_likelihood=True"):
            call(asked)
    lm = harness(approximate_likelihood=True, likelihood_samples=2)
    found = lm.loglikelihood(asked)
    assert lm.likelihood_kind.startswith("approximation") and "approximation" in capsys.readouterr().err
    assert all(value < 0 and isinstance(greedy, bool) for value, greedy in found)
    assert lm.loglikelihood(asked[::-1])[0][0] == pytest.approx(found[1][0], rel=1e-4)
    assert lm.loglikelihood([]) == []


def test_greedy_means_that_the_decoder_writes_just_that() -> None:
    lm = harness(approximate_likelihood=True, likelihood_samples=1)
    (text,) = lm.generate_until(requests(("ab", {})))
    assert len(text) > 3
    other = "a" if text[2] != "a" else "b"
    found = lm.loglikelihood(requests(("ab", text[:3]), ("ab", text[:2] + other)))
    assert [greedy for _, greedy in found] == [True, False]


def test_the_next_token_head_is_exact_and_writes_what_it_finds_likeliest() -> None:
    lm = harness(next_token=True, temperature=0)
    assert lm.exact and lm.likelihood_kind == "exact"
    (text,) = lm.generate_until(requests(("ab", {"max_gen_toks": 4})))
    found = lm.loglikelihood(requests(("ab", text)))
    assert found[0][1] is True
    parts = lm.loglikelihood(requests(("ab", text[:2]), ("ab" + text[:2], text[2:])))
    if not text[:2].endswith(" "):
        assert found[0][0] == pytest.approx(parts[0][0] + parts[1][0], rel=1e-4)
    long = "abc defg" * 20
    (rolling,) = lm.loglikelihood_rolling(requests((long,)))
    assert rolling < 0 and lm.report["texts_in_windows"] == 1
    (short,) = lm.loglikelihood_rolling(requests((long[:64],)))
    assert short == pytest.approx(lm.loglikelihood(requests(("", long[:64])))[0][0], rel=1e-5)


def test_the_autoregressive_baseline_answers_exactly() -> None:
    torch.manual_seed(0)
    llama = Llama(13, 64, width=16, depth=1, heads=2, mlp_width=24, unk_id=2).eval()
    llama.tokenizer = tokenizer()
    lm = adapter.Requests(llama, temperature=0, max_gen_toks=8)
    (text,) = lm.generate_until(requests(("ab", {})))
    assert text and lm.loglikelihood(requests(("ab", text)))[0][1] is True
    with pytest.raises(CelerisError, match="no next-token head"):
        adapter.Requests(llama, next_token=True)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter._adapter.cache_clear()
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(CelerisError, match="pip install 'lm-eval"):
        adapter.CelerisLM  # noqa: B018


# -- the harness itself -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_simple_evaluate_runs_offline_on_local_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm_eval = pytest.importorskip("lm_eval")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    lm = adapter.CelerisLM(model(), num_inference_steps=2, approximate_likelihood=True, likelihood_samples=1)
    prompts = ["ab", "cd", "efg"]
    answers = lm.generate_until(requests(*((p, {"until": ["i"], "max_gen_toks": 8}) for p in prompts)))
    answers[1] = "not this"
    data = tmp_path / "test.jsonl"
    rows = [{"q": q, "a": a, "choices": ["a", "bc"], "gold": 0} for q, a in zip(prompts, answers, strict=True)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    local = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(tmp_path / "cache")},
        "test_split": "test",
        "doc_to_text": "{{q}}",
    }
    written = {
        **local,
        "task": "celeris_written",
        "output_type": "generate_until",
        "doc_to_target": "{{a}}",
        "generation_kwargs": {"until": ["i"], "max_gen_toks": 8},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    chosen = {
        **local,
        "task": "celeris_chosen",
        "output_type": "multiple_choice",
        "doc_to_target": "{{gold}}",
        "doc_to_choice": "{{choices}}",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    found = lm_eval.simple_evaluate(model=lm, tasks=[written, chosen], bootstrap_iters=0, log_samples=True)
    assert found["results"]["celeris_written"]["exact_match,none"] == pytest.approx(2 / 3)
    likely = lm.loglikelihood(requests(*((q, f" {choice}") for q in prompts for choice in ("a", "bc"))))
    wins = [likely[2 * k][0] > likely[2 * k + 1][0] for k in range(3)]
    assert found["results"]["celeris_chosen"]["acc,none"] == pytest.approx(sum(wins) / 3)
    from lm_eval.api.registry import get_model

    assert get_model("celeris") is adapter.CelerisLM
