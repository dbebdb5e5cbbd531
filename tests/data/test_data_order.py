"""Which rows a rank reads when: resume, epochs, world sizes (field cases C2, C12)."""

import os
import signal
from collections import Counter

import numpy as np
import pytest
import torch

from celeris.data.packing import PackedRows
from celeris.data.rows import EpochOrder
from celeris.errors import CelerisError
from tests.data.corpora import corpus


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """103 rows."""
    text = "".join(chr(97 + i % 26) for i in range(103 * 16 - 1))
    data = corpus(tmp_path_factory.mktemp("order"), train=[text], val=[text], packing=PackedRows(16))
    assert len(data.train) == len(data.val) == 103
    return data


def indices(loader):
    return [batch.index.tolist() for batch in loader]


def test_every_epoch_is_a_new_permutation_whenever_it_is_asked_for():
    order = EpochOrder(seed=7, count=103)
    whole = order.rows(np.arange(309)).reshape(3, 103)
    restarted = np.stack([EpochOrder(7, 103).rows(np.arange(103 * e, 103 * (e + 1))) for e in range(3)])
    assert (whole == restarted).all()
    assert all(sorted(epoch) == list(range(103)) for epoch in whole.tolist())
    assert not any((whole[a] == whole[b]).all() for a, b in ((0, 1), (0, 2), (1, 2)))
    assert not (EpochOrder(8, 103).rows(np.arange(103)) == whole[0]).all()
    scattered = np.array([250, 3, 104, 4])
    assert (EpochOrder(7, 103).rows(scattered) == whole.ravel()[scattered]).all()


@pytest.mark.parametrize("stop", [8, 96, 104, 200])
def test_resuming_at_any_counter_continues_the_run(data, stop):
    straight = list(data.train_loader(8, 7, 0, 240))
    parts = [*data.train_loader(8, 7, 0, stop), *data.train_loader(8, 7, stop, 240)]
    assert len(straight) == len(parts) == 30
    for a, b in zip(straight, parts, strict=True):
        assert all(torch.equal(getattr(a, k), getattr(b, k)) for k in ("context", "canvas", "given", "index"))


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_global_batches_do_not_depend_on_the_number_of_ranks(data, world_size):
    micro, steps = 16 // world_size // 2, 5  # two accumulated micro-batches a step
    ranks = [indices(data.train_loader(micro, 7, 32, 32 + 16 * steps, r, world_size)) for r in range(world_size)]
    assert {len(rank) for rank in ranks} == {2 * steps}
    for step in range(steps):
        together = sorted(i for rank in ranks for batch in rank[2 * step : 2 * step + 2] for i in batch)
        assert together == list(range(32 + 16 * step, 48 + 16 * step))


@pytest.mark.parametrize("world_size", [2, 4])
def test_micro_batches_do_not_depend_on_the_number_of_ranks(data, world_size):
    """Micro-batch j of rank r is number j·W + r of one rank: a mean over micro-batches is the same mean."""
    ranks = [indices(data.train_loader(4, 7, 32, 96, r, world_size)) for r in range(world_size)]
    assert [batch for group in zip(*ranks, strict=True) for batch in group] == indices(data.train_loader(4, 7, 32, 96))


def test_four_ranks_share_103_rows(data):
    for loaders in (
        [data.train_loader(8, 7, 0, 103, r, 4) for r in range(4)],
        [data.val_loader(8, r, 4) for r in range(4)],
    ):
        ranks = [indices(loader) for loader in loaders]
        assert len({tuple(map(len, rank)) for rank in ranks}) == 1, "a rank would wait for another"
        seen = Counter(i for rank in ranks for batch in rank for i in batch)
        assert set(range(103)) <= set(seen) and max(seen.values()) == 1
        assert sum(seen.values()) - 103 <= 3  # documented: at most world_size - 1 more
    rows = torch.cat([batch.context for r in range(4) for batch in data.val_loader(8, r, 4)])
    assert len({tuple(row) for row in rows.tolist()}) == len({tuple(row) for row in data.val[:].tolist()})


def test_loader_workers_outlive_the_signals_that_end_a_run(data):
    loader = iter(data.train_loader(8, 7, 0, 240, num_workers=1))
    got = [next(loader).index.tolist()]
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
        os.kill(loader._workers[0].pid, number)
    got += [batch.index.tolist() for batch in loader]
    assert got == indices(data.train_loader(8, 7, 0, 240))


def test_one_rank_sees_every_held_out_row_once_in_order(data):
    batches = list(data.val_loader(10))
    assert [i for b in batches for i in b.index.tolist()] == list(range(103))
    assert torch.equal(torch.cat([b.context for b in batches]), data.val[:])
    again = list(data.val_loader(10))
    assert all(torch.equal(a.given, b.given) for a, b in zip(batches, again, strict=True))


def test_a_batch_is_what_its_counters_say(data):
    order = EpochOrder(7, 103)
    for batch in data.train_loader(8, 7, 96, 112):
        assert torch.equal(batch.context, data.train[order.rows(batch.index.numpy())])


def test_loader_processes_change_nothing(data):
    data.tokenizer.encode_batch(["a"] * 100)  # its threads must not hang the processes (B10)
    alone = list(data.train_loader(8, 7, 0, 64))
    helped = list(data.train_loader(8, 7, 0, 64, num_workers=2))
    for a, b in zip(alone, helped, strict=True):
        assert torch.equal(a.canvas, b.canvas) and torch.equal(a.given, b.given) and torch.equal(a.index, b.index)


def test_an_empty_batch_is_refused(data):
    with pytest.raises(CelerisError, match="not 0"):
        data.train_loader(0, 7, 0, 8)
