"""The measurement against formulae, on figures that are made up and on two real processes."""

import pytest

from celeris.scaling.collectives import all_reduce_bytes
from celeris.scaling.measure import compare, hardware_of, run
from celeris.scaling.rounds import LAUNCHES, product_flops, traffic_bytes
from celeris.scaling.small import SIZES, Size

SIZE = Size(width=64, depth=3, vocab_size=90, rows=2, length=64)
NUMBERS = 10_000


def made_up() -> dict[str, float]:
    """Seconds by name on a machine of 1 GFLOP/s, 2 GB/s of traffic, 3 µs an operation, a wire of 10 MB/s and 1 ms."""
    times = {"products": product_flops(SIZE) / 1e9, "traffic": traffic_bytes(SIZE) / 2e9, "launch": LAUNCHES * 3e-6}
    times |= {f"{name} of two": seconds for name, seconds in times.items()}
    times |= {"small sum": 2e-3, "sum": 2e-3 + all_reduce_bytes(4 * NUMBERS, 2) / 1e7}
    return times | {"one process": 1.0, "two apart": 1.0, "two processes": 2.0}


def test_speeds_are_what_was_measured() -> None:
    hardware = hardware_of(SIZE, NUMBERS, made_up(), "")
    assert hardware.single_flops == pytest.approx(1e9) and hardware.memory_bandwidth == pytest.approx(2e9)
    assert hardware.launch == pytest.approx(3e-6) and hardware.latency == pytest.approx(1e-3)
    assert hardware.wire(2) == pytest.approx(1e7)


def test_ratios_are_predicted_over_measured() -> None:
    found = {"parameters": NUMBERS, "seconds": {"wall": made_up()}}
    one, two, efficiency = compare(SIZE, found)
    assert one["ratio"] == pytest.approx(one["predicted"] / 1.0) and two["predicted"] > one["predicted"]
    assert efficiency["measured"] == 0.5 and 0 < efficiency["predicted"] < 1


@pytest.mark.slow
def test_two_real_processes() -> None:
    found = run(rounds=1)
    assert len(found) == len(SIZES)
    for size, times in zip(SIZES, found, strict=True):
        rows = compare(size, times)
        assert times["size"] == str(size) and {row["clock"] for row in rows} == {"wall", "processor"}
        assert all(row["ratio"] > 0 for row in rows)
