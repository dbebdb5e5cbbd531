"""Units: the conversions users get wrong (E12) and means that must be weighted by tokens (E7)."""

import math

import pytest

from celeris.evaluation.units import NegativeLogLikelihood, from_mean, text_size


def test_two_nats_a_token_in_every_unit():
    """2.772589 nats/token at 4 bytes/token: perplexity 16, 4 bits/token, 1 bit/byte."""
    nll = from_mean(2.772589, tokens=10, size=text_size(["abcd" * 10]))
    assert nll.perplexity == pytest.approx(16.0, abs=1e-4)
    assert nll.bits_per_token == pytest.approx(4.0, abs=1e-6)
    assert nll.bits_per_byte == pytest.approx(1.0, abs=1e-6)
    assert nll.bits_per_character == pytest.approx(1.0, abs=1e-6)


def test_characters_and_utf8_bytes_are_different_counts():
    size = text_size(["日", "é", "a"])
    assert (size.characters, size.bytes) == (3, 6)
    nll = from_mean(math.log(2), tokens=3, size=size)
    assert nll.bits_per_character == pytest.approx(1.0)
    assert nll.bits_per_byte == pytest.approx(0.5)


def test_mean_over_parts_is_weighted_by_tokens():
    """Losses 1, 2, 3 over 10, 10 and 1 tokens: 33/21, not the mean of means 2."""
    parts = [from_mean(loss, n, text_size(["x" * n])) for loss, n in [(1.0, 10), (2.0, 10), (3.0, 1)]]
    assert (parts[0] + parts[1] + parts[2]).nats_per_token == pytest.approx(33 / 21)


def test_nothing_scored_is_not_a_number_and_huge_losses_do_not_overflow():
    assert math.isnan(NegativeLogLikelihood(0.0, 0, 0, 0).nats_per_token)
    assert NegativeLogLikelihood(1e6, 1, 1, 1).perplexity == math.inf
