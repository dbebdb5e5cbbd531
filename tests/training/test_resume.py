"""20 steps straight = 10 + resume + 10, bit for bit, however the first part ended."""

from collections.abc import Callable
from pathlib import Path

import lightning as L
import pytest
import torch

from celeris.errors import CelerisError
from celeris.noise import GumbelSchedule
from celeris.training.ema import EMA
from celeris.training.loggers import read_jsonl
from celeris.training.module import TrainingModule
from celeris.training.optim import adamw

from .tiny import ROWS, MemoryText, fit, tiny_model, tiny_module


def muon_and_loss_cdf() -> TrainingModule:
    return tiny_module()


def adamw_and_gumbel() -> TrainingModule:
    """With an average that begins after the resume."""
    model = tiny_model(GumbelSchedule(1.0))
    return tiny_module(model, optimizer=lambda model: adamw(model, lr=3e-3), ema=EMA(0.9, start_step=13))


def state(folder: Path) -> dict:
    """What the run of `folder` ended with."""
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def losses(folder: Path) -> dict[int, dict[str, float]]:
    """All training numbers by step, of the latest segment that has the step."""
    return {
        line["step"]: {k: v for k, v in line.items() if k.startswith("train/")}
        for line in read_jsonl(folder / "metrics.jsonl")
        if "train/loss" in line
    }


def assert_equal(a, b, path=""):
    """Same plain containers, same bits."""
    assert type(a) is type(b), path
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_equal(a[key], b[key], f"{path}/{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), path
        for number, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_equal(x, y, f"{path}/{number}")
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b), path
    else:
        assert a == b, path


def assert_same_run(a: Path, b: Path) -> None:
    for part in ("state_dict", "celeris", "optimizer_states", "global_step"):
        assert_equal(state(a)[part], state(b)[part], part)
    assert losses(a) == losses(b) and list(losses(a)) == list(range(1, 21))


@pytest.mark.parametrize(
    ("build", "precision"),
    [(muon_and_loss_cdf, "32-true"), (muon_and_loss_cdf, "bf16-mixed"), (adamw_and_gumbel, "32-true")],
)
def test_twenty_steps_are_ten_and_ten(tmp_path, build: Callable[[], TrainingModule], precision: str):
    fit(tmp_path / "straight", build(), val_every_n_steps=5, precision=precision)
    # The first part runs under the same max_steps and is cut at step 10, as a kill would.
    fit(tmp_path / "parts", build(), val_every_n_steps=5, callbacks=[StopAtBatch(40)], precision=precision)
    assert state(tmp_path / "parts")["global_step"] == 10
    torch.manual_seed(99)  # a new process stands elsewhere in the global stream
    last = tmp_path / "parts" / "checkpoints" / "last.ckpt"
    fit(tmp_path / "parts", build(), val_every_n_steps=5, ckpt=last, precision=precision)
    assert_same_run(tmp_path / "straight", tmp_path / "parts")


class StopAtBatch(L.Callback):
    """Asks for the end after micro-batch number `batch` (1-based), like a clock would."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        trainer.should_stop = trainer.should_stop or batch_idx + 1 == self.batch


class FailAtBatch(L.Callback):
    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx + 1 == self.batch:
            raise RuntimeError("power cut")


def test_stop_inside_an_accumulation(tmp_path):
    fit(tmp_path / "straight")
    # 4 micro-batches a step: 3 of step 11 are done, and the only checkpoint is written in this state.
    stopped = fit(tmp_path / "parts", callbacks=[StopAtBatch(43)], every_n_steps=1000)
    saved = state(tmp_path / "parts")
    assert saved["global_step"] == 10
    live = stopped.model.schedule
    assert live._held[0].sum() > 0  # the schedule's fit has seen those 3, and learned nothing of them
    assert torch.equal(saved["state_dict"]["model.schedule.loss"], live.loss)
    fit(tmp_path / "parts", ckpt=tmp_path / "parts" / "checkpoints" / "last.ckpt")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")


def test_crash_inside_an_accumulation_and_three_resumes(tmp_path):
    fit(tmp_path / "straight")
    last = tmp_path / "parts" / "checkpoints" / "last.ckpt"
    for batch in (30, 21, 18):  # counted from the resume; checkpoints every 3 steps
        with pytest.raises(RuntimeError, match="power cut"):
            fit(
                tmp_path / "parts",
                every_n_steps=3,
                callbacks=[FailAtBatch(batch)],
                ckpt=last if last.exists() else None,
            )
    assert torch.load(last, weights_only=True)["global_step"] == 12
    fit(tmp_path / "parts", every_n_steps=3, ckpt=last)
    assert_same_run(tmp_path / "straight", tmp_path / "parts")


def test_micro_batch_size_may_change_at_a_resume(tmp_path):
    """Not bit for bit (sums associate differently, dropout is drawn per micro-batch), but on the same samples."""
    data = MemoryText()
    fit(tmp_path, data=data, micro_batch_size=2, callbacks=[StopAtBatch(40)])
    fit(tmp_path, data=data, micro_batch_size=8, ckpt=tmp_path / "checkpoints" / "last.ckpt")
    assert data.served == [(0, 0, 160), (0, 80, 160)] and list(losses(tmp_path)) == list(range(1, 21))


class Seen(L.Callback):
    def __init__(self) -> None:
        self.index: list[int] = []
        self.rows: list[tuple[int, ...]] = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.index += batch.index.tolist()
        self.rows += [tuple(row) for row in batch.context.tolist()]


def test_restart_at_each_epoch_end_sees_the_same_three_different_orders(tmp_path):
    def run(folder, seen, **how):
        fit(folder, tiny_module(global_batch_size=ROWS), global_batch_size=ROWS, micro_batch_size=ROWS,
            max_steps=3, every_n_steps=1, callbacks=[seen, *how.pop("callbacks", [])], **how)  # fmt: skip

    straight, parts = Seen(), Seen()
    run(tmp_path / "straight", straight)
    last = tmp_path / "parts" / "checkpoints" / "last.ckpt"
    run(tmp_path / "parts", parts, callbacks=[StopAtBatch(1)])
    run(tmp_path / "parts", parts, callbacks=[StopAtBatch(1)], ckpt=last)
    run(tmp_path / "parts", parts, ckpt=last)
    assert parts.index == straight.index == list(range(3 * ROWS)) and parts.rows == straight.rows
    epochs = [tuple(straight.rows[k * ROWS : (k + 1) * ROWS]) for k in range(3)]
    assert len(set(epochs)) == 3 and len({frozenset(epoch) for epoch in epochs}) == 1


class AsksForTheTotal(TrainingModule):
    def configure_optimizers(self):
        assert self.trainer.estimated_stepping_batches > 0  # sets the loaders up before the state is restored
        return super().configure_optimizers()


def test_a_scheduler_that_asks_for_the_total_steps_does_not_reset_the_data(tmp_path):
    def module():
        built = tiny_module()
        built.__class__ = AsksForTheTotal
        return built

    fit(tmp_path, module(), callbacks=[StopAtBatch(28)])
    seen = Seen()
    fit(tmp_path, module(), callbacks=[seen], ckpt=tmp_path / "checkpoints" / "last.ckpt")
    assert seen.index == list(range(7 * 8, 160))


@pytest.mark.parametrize(("change", "named"), [({"seed": 8}, "seed=7"), ({"identity": {"data": "b"}}, "data=a")])
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change, named):
    fit(tmp_path, tiny_module(identity={"data": "a"}), max_steps=1)
    other = tiny_module(**{"identity": {"data": "a"}, **change})
    with pytest.raises(CelerisError, match=named):
        fit(tmp_path, other, ckpt=tmp_path / "checkpoints" / "last.ckpt")
