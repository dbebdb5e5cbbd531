"""Bytes on the wire against sums over the messages that a ring sends."""

import math

import pytest

from celeris.scaling.collectives import (
    all_reduce_bytes,
    gather_bytes,
    scatter_bytes,
    tensor_parallel_bytes,
    tree_messages,
    wire_seconds,
)


def ring_gather(size: float, ranks: int) -> tuple[list[set[int]], list[float]]:
    """Play it: each rank hands on the part it got last, until all have all; what each has, and has sent."""
    has, sent = [{rank} for rank in range(ranks)], [0.0] * ranks
    newest = list(range(ranks))
    for _ in range(ranks - 1):
        passed = [newest[rank - 1] for rank in range(ranks)]
        for rank in range(ranks):
            sent[rank - 1] += size / ranks
            has[rank].add(passed[rank])
        newest = passed
    return has, sent


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_a_gather_sends_what_the_ring_sends(ranks: int) -> None:
    has, sent = ring_gather(840.0, ranks)
    assert all(part == set(range(ranks)) for part in has)
    assert sent == pytest.approx([gather_bytes(840.0, ranks)] * ranks)


def test_an_all_reduce_is_a_scatter_and_a_gather() -> None:
    assert all_reduce_bytes(1.0, 4) == pytest.approx(2 * 3 / 4)
    assert all_reduce_bytes(7.0, 1) == 0
    assert all_reduce_bytes(5.0, 64) == pytest.approx(scatter_bytes(5.0, 64) + gather_bytes(5.0, 64))


def test_many_ranks_send_twice_the_data_and_no_more() -> None:
    assert 1.99 < all_reduce_bytes(1.0, 1024) < 2


def test_messages_and_seconds() -> None:
    assert [tree_messages(n) for n in (2, 8, 9, 1024)] == [2, 6, 8, 20]
    assert wire_seconds(100.0, 3, bandwidth=50.0, latency=0.5) == pytest.approx(3.5)


def test_tensor_parallel_sends_four_sums_a_layer() -> None:
    assert tensor_parallel_bytes(tokens=10, width=8, depth=3, ranks=2) == pytest.approx(3 * 4 * 2 * 10 * 8 * 2 * 0.5)
    assert math.isclose(tensor_parallel_bytes(10, 8, 3, 1), 0)
