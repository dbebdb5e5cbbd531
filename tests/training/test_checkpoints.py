import os
import random
import signal
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch

from celeris.errors import CelerisError
from celeris.training.callbacks import Checkpoints
from celeris.training.callbacks import checkpoints as checkpoints_file
from celeris.training.checkpoint_folder import read_folder, write_folder
from celeris.training.ema import EMA

from .tiny import fit, tiny_module


def test_names_last_and_how_many_are_kept(tmp_path):
    fit(tmp_path, max_steps=7, every_n_steps=2, callbacks=[Checkpoints(tmp_path / "few", 2, keep=2)])
    assert sorted(f.name for f in (tmp_path / "few").iterdir()) == [
        "last.ckpt",
        "step_00000006.ckpt",
        "step_00000007.ckpt",
    ]
    assert (tmp_path / "few" / "last.ckpt").samefile(tmp_path / "few" / "step_00000007.ckpt")
    assert torch.load(tmp_path / "few" / "last.ckpt", weights_only=True)["global_step"] == 7
    with pytest.raises(CelerisError, match="at least 1"):
        Checkpoints(tmp_path, 0)


def test_raw_weights_and_average_are_two_sets_also_when_saved_at_validation_end(tmp_path):
    class SaveAtValidationEnd(L.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.live = {k: v.detach().clone() for k, v in pl_module.model.named_parameters()}

        def on_validation_end(self, trainer, pl_module):
            trainer.save_checkpoint(tmp_path / "at_validation.ckpt")

    saver = SaveAtValidationEnd()
    module = fit(tmp_path, max_steps=6, val_every_n_steps=6, callbacks=[saver])
    saved = torch.load(tmp_path / "at_validation.ckpt", weights_only=True)
    average = saved["celeris"]["ema"]["average"]
    for name, live in saver.live.items():
        assert torch.equal(saved["state_dict"][f"model.{name}"], live), name
        assert torch.equal(average[name], module.ema.average[name]), name
    assert any(not torch.equal(average[name], live) for name, live in saver.live.items())


def test_validation_uses_the_average_once_there_is_one(tmp_path):
    """EMA from step 50, validation at 10: the same held-out loss as without any EMA; at decay 0.9 another one."""

    def held_out(ema: EMA, name: str) -> float:
        module = fit(tmp_path / name, tiny_module(ema=ema), max_steps=10, val_every_n_steps=10)
        return float(module.trainer.callback_metrics["val/loss"])

    late, none, used = held_out(EMA(0.9, 50), "late"), held_out(EMA(0.0), "none"), held_out(EMA(0.99), "used")
    assert late == pytest.approx(none, abs=1e-6) and abs(used - none) > 1e-5


class FakeTrainer:
    """Writes states of a few megabytes as fast as it can."""

    is_global_zero = True
    should_stop = False
    strategy: Any = SimpleNamespace(barrier=lambda name: None)

    def __init__(self) -> None:
        self.global_step = 0
        self.weights = torch.zeros(1 << 19)

    def save_checkpoint(self, path) -> None:
        self.write({"global_step": self.global_step, "weights": self.weights + self.global_step}, path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("write", "read", "kills", "longest"),
    [
        pytest.param(torch.save, partial(torch.load, weights_only=True), 20, 0.02, id="files"),
        pytest.param(write_folder, read_folder, 10, 0.3, id="folders", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_kill_during_the_save_leaves_whole_checkpoints(tmp_path, write, read, kills, longest):
    random.seed(0)
    trainer: Any = FakeTrainer()
    trainer.write = write
    last = tmp_path / "last.ckpt"
    for _ in range(kills):
        before = trainer.global_step
        child = os.fork()
        if child == 0:
            writer = Checkpoints(tmp_path, 1, keep=2)
            while True:
                trainer.global_step += 1
                writer.save(trainer)
        newest = last.stat().st_ino if last.exists() else None
        while not last.exists() or last.stat().st_ino == newest:
            time.sleep(0.001)
        time.sleep(random.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        states = {path.name: read(path) for path in tmp_path.glob("[!.]*.ckpt")}
        for state in states.values():
            assert (state["weights"] == state["global_step"]).all()
        trainer.global_step = states["last.ckpt"]["global_step"]
        assert trainer.global_step > before
    Checkpoints(tmp_path, 1, keep=2)._clear_leftovers()
    assert len(list(tmp_path.glob("[!.]*"))) <= 4 and not list(tmp_path.glob(".step*"))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_folder_takes_the_place_of_a_file_and_the_other_way_round(tmp_path):
    """A run that went on with another strategy, from an earlier step: its new checkpoint has the name of an old one."""
    trainer: Any = FakeTrainer()
    trainer.global_step = 3
    for write in (torch.save, write_folder, write_folder, torch.save):
        trainer.write = write
        trainer.weights = trainer.weights + 1
        Checkpoints(tmp_path, 1).save(trainer)
        last = tmp_path / "last.ckpt"
        assert last.is_dir() == (write is write_folder) and last.samefile(tmp_path / "step_00000003.ckpt")
        found = read_folder(last) if last.is_dir() else torch.load(last, weights_only=True)
        assert torch.equal(found["weights"], trainer.weights + 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "step_00000003.ckpt"]


def test_half_a_folder_is_said_to_be_no_checkpoint(tmp_path):
    (tmp_path / "step_00000003.ckpt").mkdir()
    with pytest.raises(CelerisError, match="no whole checkpoint"):
        read_folder(tmp_path / "step_00000003.ckpt")


def test_a_failed_write_is_an_error_at_the_first_save(tmp_path, monkeypatch):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(CelerisError, match="step 3 cannot be written"):
        fit(tmp_path, max_steps=20, every_n_steps=3)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints_file.os, "replace", full)
    with pytest.raises(CelerisError, match="No space left"):
        fit(tmp_path / "other", max_steps=20, every_n_steps=3)
