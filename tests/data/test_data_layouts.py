"""Layouts: what is context, canvas and given."""

import pytest
import torch

from celeris.data.layouts import AllBlocks, Split, given_spans
from celeris.errors import CelerisError
from celeris.streams import generator

PAD = 0


def rows(count=64, length=24, shortest=24):
    ids = torch.randint(2, 50, (count, length), generator=generator(0, "test"))
    real = torch.randint(shortest, length + 1, (count, 1), generator=generator(1, "test"))
    return torch.where(torch.arange(length) < real, ids, PAD), torch.arange(count) + 1000


@pytest.mark.parametrize("p_given", [0.0, 0.7])
def test_all_blocks_cuts_the_row(p_given):
    ids, index = rows()
    batch = AllBlocks(8, p_given)(ids, index, seed=7, pad_id=PAD)
    assert batch.canvas.shape == batch.given.shape == (64, 3, 8) and batch.start.shape == (64, 3)
    assert torch.equal(batch.context, ids) and torch.equal(batch.canvas.flatten(1), ids)
    for n in range(3):
        assert (batch.start[:, n] == 8 * n).all()
    assert bool(batch.given.any()) == (p_given > 0)


def test_split_loses_nothing_and_repeats_nothing():
    ids, index = rows(shortest=3)
    batch = Split(p_empty=0.25, p_given=0.5)(ids, index, seed=7, pad_id=PAD)
    for k in range(len(ids)):
        start = int(batch.start[k, 0])
        joined = torch.cat([batch.context[k, :start], batch.canvas[k, 0]])
        real = ids[k][ids[k] != PAD]
        assert torch.equal(joined[: len(real)], real) and (joined[len(real) :] == PAD).all()
        assert (batch.context[k, start:] == PAD).all()
        assert len(real) > start, "a canvas without a token"
    assert int(batch.start.max()) == batch.context.shape[1]


def test_split_boundaries_have_the_stated_distribution():
    ids, index = rows(count=4000)
    starts = Split(p_empty=0.25)(ids, index, seed=7, pad_id=PAD).start.squeeze(1)
    assert abs(float((starts == 0).float().mean()) - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5
    counts = torch.bincount(starts[starts > 0], minlength=24)[1:].double()
    assert len(counts) == 23 and int(counts.min()) > 0
    chi = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    assert chi < 22 + 4 * (2 * 22) ** 0.5  # 22 degrees of freedom
    assert (Split(p_empty=1.0)(ids, index, seed=7, pad_id=PAD).start == 0).all()
    assert (Split(p_empty=0.0)(ids, index, seed=7, pad_id=PAD).start > 0).all()


@pytest.mark.parametrize("layout", [AllBlocks(8, 0.5), Split(0.25, 0.5)], ids=repr)
def test_a_row_is_laid_out_the_same_in_any_company(layout):
    ids, index = rows(shortest=4)
    whole = layout(ids, index, seed=7, pad_id=PAD)
    order = torch.randperm(64, generator=generator(2, "test"))[:5]
    some = layout(ids[order], index[order], seed=7, pad_id=PAD)
    width = some.canvas.shape[2]
    assert torch.equal(whole.start[order], some.start)
    assert torch.equal(whole.canvas[order][..., :width], some.canvas)
    assert torch.equal(whole.given[order][..., :width], some.given)
    other = layout(ids, index, seed=8, pad_id=PAD)
    assert other.given.shape != whole.given.shape or not torch.equal(other.given, whole.given)


def test_given_spans_cover_a_share_and_leave_something_to_learn():
    block = torch.arange(2, 18)
    masks = [given_spans(block, 0.5, generator(7, "given", k), PAD) for k in range(2000)]
    touched = [m for m in masks if m.any()]
    assert 0.4 < len(touched) / len(masks) < 0.5  # a span may be empty
    assert not any(bool(m.all()) for m in masks)
    share = torch.stack(touched).float().mean()
    assert 0.3 < float(share) < 0.5
    runs = {int((torch.diff(m.int(), prepend=torch.zeros(1, dtype=torch.int)) == 1).sum()) for m in touched}
    assert runs == {1, 2, 3}


def test_pad_is_never_given():
    block = torch.tensor([5, 6, 7, 8, PAD, PAD, PAD, PAD])
    for k in range(200):
        mask = given_spans(block, 1.0, generator(7, "given", k), PAD)
        assert not mask[4:].any() and not mask[:4].all()
    assert not given_spans(torch.zeros(8, dtype=torch.long), 1.0, generator(7, "given"), PAD).any()


def test_rows_that_cannot_be_cut_are_refused():
    ids, index = rows()
    with pytest.raises(CelerisError, match="24.*blocks of 7"):
        AllBlocks(7)(ids, index, seed=7, pad_id=PAD)
