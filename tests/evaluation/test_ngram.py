"""The yardstick: exact normalisation, hand-computed estimates, and sources whose entropy is known."""

import math
from itertools import product

import numpy as np
import pytest

from celeris.evaluation.ngram import InterpolatedNGram


def test_distributions_sum_to_one_after_every_context():
    """Seen, half-seen and unseen contexts alike, for every order, with an unused token and with PAD gaps."""
    stream = np.random.default_rng(0).integers(1, 4, 60)
    stream[[7, 8, 30]] = 0
    model = InterpolatedNGram(stream, order=3, vocab_size=5, pad_id=0)
    for context in [(), *product(range(5), repeat=1), *product(range(5), repeat=2), (3, 2, 1, 1)]:
        for order in (1, 2, 3):
            probabilities = model.distribution(context, order)
            assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
            assert (probabilities > 0).all()


def test_witten_bell_by_hand():
    """a b a c: unigram p(a) = (2 + 3/4)/(4 + 3); after a: one b, one c, two types."""
    model = InterpolatedNGram([0, 1, 0, 2], order=2, vocab_size=4)
    p_b = (1 + 3 / 4) / 7
    assert model.distribution([], 1)[0] == pytest.approx((2 + 3 / 4) / 7)
    assert model.distribution([0])[1] == pytest.approx((1 + 2 * p_b) / 4)
    assert model.distribution([2])[1] == pytest.approx(p_b)  # c ends the stream: the unigram stands
    assert model.distribution([3])[1] == pytest.approx(p_b)  # never seen


def test_matches_a_plain_dictionary_implementation():
    rng = np.random.default_rng(1)
    stream = rng.integers(0, 4, 300).tolist()
    model = InterpolatedNGram(stream, order=4, vocab_size=5)

    def slow(context: tuple[int, ...], token: int) -> float:
        lower = slow(context[1:], token) if context else 1 / 5
        n = len(context)
        followers = [stream[i + n] for i in range(len(stream) - n) if tuple(stream[i : i + n]) == context]
        if not followers:
            return lower
        types = len(set(followers))
        return (followers.count(token) + types * lower) / (len(followers) + types)

    row = rng.integers(0, 5, 40).tolist()
    expected = [math.log(slow(tuple(row[max(0, i - 3) : i]), row[i])) for i in range(len(row))]
    np.testing.assert_allclose(model.log_probabilities([row])[0], expected, rtol=0, atol=1e-12)


def test_recovers_the_entropy_of_an_independent_source():
    p = np.array([0.7, 0.2, 0.1])
    rng = np.random.default_rng(2)
    model = InterpolatedNGram(rng.choice(3, 200_000, p=p), order=5, vocab_size=3)
    held_out = rng.choice(3, (50, 2_000), p=p)
    truth = -(p * np.log(p)).sum()
    noise = 3 * np.sqrt((p * np.log(p) ** 2).sum() - truth**2) / math.sqrt(held_out.size)
    assert model.nats(held_out, order=1) / held_out.size == pytest.approx(truth, abs=noise)
    excess = model.nats(held_out) / held_out.size - truth
    assert -noise < excess < noise + 0.002  # 5-grams of noise cost a little, and can never gain


def test_recovers_the_entropy_rate_of_a_markov_chain():
    transition = np.array([[0.9, 0.1], [0.3, 0.7]])
    rng = np.random.default_rng(3)
    chain = [0]
    for u in rng.random(120_000):
        chain.append(int(u > transition[chain[-1], 0]))
    model = InterpolatedNGram(chain[:100_000], order=3, vocab_size=2)
    truth = -(np.array([0.75, 0.25])[:, None] * transition * np.log(transition)).sum()
    held_out = np.array(chain[100_000:120_000])
    assert model.nats(held_out) / held_out.size == pytest.approx(truth, abs=0.015)
    assert model.nats(held_out, order=1) / held_out.size > truth + 0.1


def test_rows_stand_alone_and_pad_is_neither_counted_nor_crossed():
    model = InterpolatedNGram([1, 2, 0, 0, 1, 2, 0, 2, 1], order=2, vocab_size=3, pad_id=0)
    alone = model.log_probabilities([[1, 2]])
    together = model.log_probabilities([[2, 1], [1, 2]])
    np.testing.assert_array_equal(alone[0], together[1])
    padded = model.log_probabilities([[1, 2, 0, 0]])
    np.testing.assert_array_equal(padded[0, :2], alone[0])
    assert np.isnan(padded[0, 2:]).all()
    assert model.nats([[1, 2, 0, 0]]) == pytest.approx(model.nats([[1, 2]]))
    assert model.tokens == 6
    assert model.distribution([2])[2] < model.distribution([2])[1]  # 2 (gap) 2 never counted as a bigram


def test_refuses_what_it_cannot_count():
    with pytest.raises(ValueError, match="order"):
        InterpolatedNGram([1], order=0, vocab_size=2)
    with pytest.raises(ValueError, match="no tokens"):
        InterpolatedNGram([0, 0], order=1, vocab_size=2, pad_id=0)
    with pytest.raises(ValueError, match="vocabulary has 2"):
        InterpolatedNGram([0, 2], order=1, vocab_size=2)
    with pytest.raises(ValueError, match="up to order 1"):
        InterpolatedNGram([0, 1], order=1, vocab_size=2).nats([[0]], order=2)
