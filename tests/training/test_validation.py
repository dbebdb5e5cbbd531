from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from celeris.batch import Batch
from celeris.noise import GumbelSchedule
from celeris.training.loggers import read_jsonl
from celeris.training.validation import HeldOut, LossesByLevel, real_rows

from .tiny import BLOCK, LENGTH, VOCAB, MemoryText, fit, tiny_model, tiny_module

CPU = torch.device("cpu")
ALONE = SimpleNamespace(root_device=CPU, reduce=lambda tensor, reduce_op: tensor)


class Together:
    """What HeldOut needs of a strategy, over torch.distributed."""

    root_device = CPU

    @staticmethod
    def reduce(tensor, reduce_op):
        dist.all_reduce(tensor)
        return tensor


BATCHES = [(1.0, 10), (2.0, 10), (3.0, 1)]  # loss, tokens


def held_out(batches) -> HeldOut:
    sums = HeldOut()
    for loss, tokens in batches:
        sums.add({"loss": torch.tensor(loss)}, torch.tensor(tokens))
    return sums


def test_every_token_counts_once():
    assert held_out(BATCHES).means(ALONE) == {"loss": pytest.approx(33 / 21)}
    with_empty = held_out([*BATCHES, (float("nan"), 0)])
    assert with_empty.means(ALONE) == {"loss": pytest.approx(33 / 21)}


def _rank(rank: int, address: str) -> None:
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    means = held_out(BATCHES[rank::2]).means(Together)
    assert abs(means["loss"] - 33 / 21) < 1e-12, means
    # Rows that all lack something on one rank, and a rank without any row.
    uneven = HeldOut()
    if rank == 1:
        uneven.add({"loss": torch.tensor(2.0), "loss_next_token": torch.tensor(3.0)}, torch.tensor(4))
    assert uneven.means(Together) == {"loss": 2.0, "loss_next_token": 3.0}
    dist.destroy_process_group()


@pytest.mark.slow
def test_every_token_counts_once_on_two_ranks(tmp_path):
    mp.spawn(_rank, args=(f"file://{tmp_path / 'meet'}",), nprocs=2)


def test_rows_that_fill_the_last_batch_are_left_out():
    ids = torch.arange(6).view(3, 2)
    batch = Batch(ids, ids[:, None], torch.zeros(3, 1).long(), torch.zeros(3, 1, 2).bool(), torch.tensor([3, 4, 5]))
    kept = real_rows(batch, 5)
    assert kept.index.tolist() == [3, 4] and kept.canvas.shape == (2, 1, 2)
    assert real_rows(batch, None) is batch and real_rows(batch, 6) is batch


def test_the_model_computes_alike_on_the_logged_levels(tmp_path):
    """The logged figure is the loss one gets by hand with the averaged weights; the state is as without validation."""
    with_validation = fit(tmp_path / "a", max_steps=6, val_every_n_steps=3)
    without = fit(tmp_path / "b", max_steps=6)
    for (name, a), b in zip(with_validation.state_dict().items(), without.state_dict().values(), strict=True):
        assert torch.equal(a, b), name

    lines = [line for line in read_jsonl(tmp_path / "a" / "metrics.jsonl") if "val/loss" in line]
    assert [line["step"] for line in lines] == [3, 6]
    model, ids = with_validation.model.eval(), MemoryText().val.ids
    batch = MemoryText().layout(ids, torch.arange(len(ids)), seed=0, pad_id=0)
    with with_validation.ema.swapped(model):
        levels = with_validation._probe(model, batch)
    for name, level in levels.items():
        assert lines[-1][f"val/{name}"] == pytest.approx(float(level.mean), rel=1e-5)
    assert {"loss_at_gamma/-1", "loss_at_gamma/2", "loss_first_pure"} == set(levels)


def test_levels_span_from_certainty_to_the_prior():
    """A fresh model has the evidence only: no loss without noise, log V under pure noise; other levels are left out."""
    model = tiny_model(GumbelSchedule(1.0)).eval()
    ids = torch.randint(2, VOCAB, (40, LENGTH), generator=torch.Generator().manual_seed(2))
    ids[:, -3:] = 0  # PAD earns no loss
    batch = MemoryText().layout(ids, torch.arange(40), seed=0, pad_id=0)
    low, high = model.schedule.gamma(torch.tensor([0.0, 1.0])).tolist()
    losses = LossesByLevel([low - 1, low + 0.01, high - 0.01, high + 1], seed=3)(model, batch)
    assert len(losses) == 3
    clean, noisy = (losses[f"loss_at_gamma/{gamma:g}"] for gamma in (low + 0.01, high - 0.01))
    assert clean.mean < 0.1 and abs(noisy.mean - F.cross_entropy(torch.zeros(1, VOCAB - 1), torch.tensor([0]))) < 0.1
    assert clean.tokens == 40 * (LENGTH - 3) and losses["loss_first_pure"].tokens == 40 * (LENGTH // BLOCK)


def test_a_rank_without_held_out_rows_stays_in_step_with_the_others(tmp_path):
    """It scores what fills its batch, counts nothing of it, and so has the sums the others wait for."""
    module = tiny_module()
    module._num_val_rows = lambda: 0
    fit(tmp_path, module, max_steps=1, val_every_n_steps=1)
    assert "loss" in module._held_out._sums and all(pair[1] == 0 for pair in module._held_out._sums.values())
    assert not any("val/loss" in line for line in read_jsonl(tmp_path / "metrics.jsonl"))
