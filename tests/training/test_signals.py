import os
import signal
from types import SimpleNamespace

import lightning as L
import pytest
import torch

from celeris.training.callbacks import StopOnSignal
from celeris.training.loggers import read_jsonl

from .test_resume import assert_same_run
from .tiny import fit


class SendAtBatch(L.Callback):
    def __init__(self, batch: int, number: int, times: int = 1) -> None:
        self.batch, self.number, self.times = batch, number, times

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx + 1 == self.batch:
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
def test_a_signal_ends_the_run_after_the_step_in_progress(tmp_path, number):
    before = signal.getsignal(number)
    stop = StopOnSignal()
    fit(tmp_path, every_n_steps=1000, callbacks=[SendAtBatch(26, number), stop])  # within step 7
    assert stop.received == number and signal.getsignal(number) == before
    assert torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 7
    assert [line["step"] for line in read_jsonl(tmp_path / "metrics.jsonl")] == list(range(1, 8))


def test_a_preempted_run_continues_as_if_it_had_not_been(tmp_path):
    fit(tmp_path / "straight", val_every_n_steps=5)
    fit(tmp_path / "parts", val_every_n_steps=5, callbacks=[SendAtBatch(45, signal.SIGTERM), StopOnSignal()])
    fit(tmp_path / "parts", val_every_n_steps=5, ckpt=tmp_path / "parts" / "checkpoints" / "last.ckpt")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")


def test_the_second_interrupt_is_immediate(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(tmp_path, callbacks=[SendAtBatch(26, signal.SIGINT, times=2), StopOnSignal()])
    signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "checkpoints").exists()


def test_a_signal_that_comes_while_the_ranks_agree_counts_after_the_next_step():
    stop = StopOnSignal()

    def reduce(own, reduce_op):
        if stop.received is None and not stop._noted:
            os.kill(os.getpid(), signal.SIGTERM)  # the handler runs before the answer is looked at
        return own

    strategy = SimpleNamespace(reduce=reduce, root_device=torch.device("cpu"))
    trainer = SimpleNamespace(world_size=2, strategy=strategy, should_stop=False)
    module = SimpleNamespace(between_steps=True)
    stop.on_train_start(trainer, module)
    try:
        stop.on_train_batch_end(trainer, module, None, None, 0)
        assert not trainer.should_stop and stop.received is None  # the others were told 0, and go on
        stop.on_train_batch_end(trainer, module, None, None, 1)
        assert trainer.should_stop and stop.received == signal.SIGTERM
    finally:
        stop.teardown(trainer, module, "fit")
