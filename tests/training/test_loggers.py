import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import lightning as L
import pytest
from lightning.pytorch.utilities import rank_zero_only

from celeris.training.loggers import MetricsFile, WandbRun, read_jsonl
from celeris.training.reporting import MediaLogger

from .test_resume import StopAtBatch
from .tiny import fit


def test_a_resumed_run_appends_its_own_segment(tmp_path):
    """Stopped at 9 with a checkpoint of 6 only: steps 7 … 9 appear twice, nothing is lost."""
    fit(tmp_path, max_steps=12, every_n_steps=6, callbacks=[StopAtBatch(36)])
    (tmp_path / "checkpoints" / "step_00000009.ckpt").unlink()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"segment": 0, "step": 10, "train/lo')  # torn by a kill
    fit(tmp_path, max_steps=12, every_n_steps=6, ckpt=tmp_path / "checkpoints" / "step_00000006.ckpt")
    lines = [line for line in read_jsonl(tmp_path / "metrics.jsonl") if "train/loss" in line]
    assert [line["step"] for line in lines if line["segment"] == 0] == list(range(1, 10))
    assert [line["step"] for line in lines if line["segment"] == 1] == list(range(7, 13))
    first = {line["step"]: line["train/loss"] for line in lines if line["segment"] == 0}
    again = {line["step"]: line["train/loss"] for line in lines if line["segment"] == 1 and line["step"] < 10}
    assert again == {step: first[step] for step in (7, 8, 9)}


def test_values_that_json_does_not_know_stay_readable(tmp_path):
    log = MetricsFile(tmp_path)
    log.log_metrics({"a": float("nan"), "b": float("-inf"), "c": 0.1}, 3)
    log.log_table("samples", ["text"], [['日\n"x"']], 3)
    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)
    assert (line["a"], line["b"], line["c"], line["step"], line["segment"]) == ("nan", "-inf", 0.1, 3, 0)
    assert read_jsonl(tmp_path / "samples.jsonl")[0]["text"] == '日\n"x"'
    assert isinstance(log, MediaLogger) and isinstance(WandbRun(tmp_path), MediaLogger)


def test_without_wandb_nothing_imports_it(tmp_path):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.training.tiny import fit\n"
        f"fit(Path({str(tmp_path)!r}), max_steps=2)\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'wandb'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip().endswith("[]")


class FakeWandb(SimpleNamespace):
    """Fails at `init`, or at the given call of `log`."""

    def __init__(self, fail_at: int | None, no_network: bool = False) -> None:
        super().__init__(logged=[], settings=None, metrics=[], inits=[], ended=0)
        self.fail_at, self.no_network = fail_at, no_network
        self.Settings = lambda **kwargs: kwargs
        self.Table = lambda columns, data: (columns, data)
        self.Image = str

    def init(self, **settings):
        self.inits.append(settings)
        if self.fail_at is None or (self.no_network and settings["mode"] == "online"):
            raise OSError("no network [here]")
        self.settings = settings
        return self

    def define_metric(self, name, step_metric):
        self.metrics.append((name, step_metric))

    def log(self, values):
        if len(self.logged) == self.fail_at:
            raise ConnectionError("gone")
        self.logged.append(values)

    def finish(self, exit_code):
        self.logged.append({"exit": exit_code})

    def teardown(self, exit_code):
        self.ended += 1


@pytest.mark.parametrize("fail_at", [None, 0, 3])
def test_a_failing_wandb_never_stops_training(tmp_path, monkeypatch, capsys, fail_at):
    fake = FakeWandb(fail_at)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    module = fit(tmp_path, max_steps=6, around=lambda trainer: trainer.loggers.append(WandbRun(tmp_path)))
    assert module.global_step == 6 and len(read_jsonl(tmp_path / "metrics.jsonl")) == 6
    assert len(fake.logged) == (fail_at or 0) and fake.ended == 1
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("W&B stopped") == 1 and "metrics.jsonl has every number" in said


def test_without_a_network_the_run_is_kept_offline(tmp_path, monkeypatch, capsys):
    fake = FakeWandb(-1, no_network=True)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    log = WandbRun(tmp_path, offline=False)
    for step in range(3):
        log.log_metrics({"train/loss": 1.0}, step)
    assert [settings["mode"] for settings in fake.inits] == ["online", "offline"]
    assert len({settings["id"] for settings in fake.inits}) == 1
    assert [line["trainer/global_step"] for line in fake.logged] == [0, 1, 2]
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("warning") == 1 and "kept offline" in said


def test_only_the_first_of_four_ranks_starts_wandb(tmp_path, monkeypatch):
    fake = FakeWandb(-1)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for rank in range(4):
        monkeypatch.setattr(rank_zero_only, "rank", rank)
        log = WandbRun(tmp_path)
        log.log_metrics({"train/loss": 1.0}, 1)
        log.log_metrics({"val/loss": 1.0}, 1)
        log.log_hyperparams({"a": 1})
        log.finalize("success")
    assert len(fake.inits) == 1


def test_wandb_gets_its_own_x_axis_and_one_run_for_all_resumes(tmp_path, monkeypatch):
    fake = FakeWandb(fail_at=-1)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    ids = {}
    for offline in (True, False):
        for start in range(2):
            log = WandbRun(tmp_path, offline=offline)
            log.log_metrics({"train/loss": 1.0}, 5)
            log.log_table("samples", ["text"], [["a"]], 5)
            log.finalize("success")
            ids[offline, start] = fake.settings["id"], fake.settings["mode"], fake.settings["group"]
    assert fake.logged[0] == {"train/loss": 1.0, "trainer/global_step": 5}
    assert fake.logged[1] == {"samples": (["step", "text"], [[5, "a"]]), "trainer/global_step": 5}
    assert fake.logged[2] == {"exit": 0} and ("*", "trainer/global_step") in fake.metrics
    assert len({record[0] for record in ids.values()}) == 1
    assert {record[2] for record in ids.values()} == {tmp_path.name} and ids[True, 0][1] == "offline"
    waits = fake.settings["settings"]
    assert max(waits["init_timeout"], waits["login_timeout"], waits["finish_timeout"]) <= 60


@pytest.mark.slow
@pytest.mark.parametrize("offline", [True, False])
def test_wandb_needs_no_network(tmp_path, offline):
    """In a network namespace where nothing can be reached: no step waits for it, and the start less than W&B's 90 s."""
    pytest.importorskip("wandb")
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode:
        pytest.skip("this system lets nobody make a network namespace (unshare -rn)")
    program = f"""
from pathlib import Path
from celeris.training.loggers import WandbRun
from tests.training.tiny import fit

log = WandbRun(Path({str(tmp_path)!r}), offline={offline}, start_seconds=5, finish_seconds=5)
fit(Path({str(tmp_path)!r}), max_steps=5, around=lambda trainer: trainer.loggers.append(log))
assert not log._failed
"""
    env = {**os.environ, "WANDB_API_KEY": "0" * 40}
    words = ["unshare", "-rn", sys.executable, "-c", program]
    done = subprocess.run(
        words,
        cwd=Path(__file__).parents[2],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done
    assert ("kept offline" in done.stdout) == (not offline)
    assert list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    times = [line["time"] for line in read_jsonl(tmp_path / "metrics.jsonl")]
    waits = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert len(times) == 5 and waits[0] < 20 and max(waits[1:]) < 10  # W&B starts with the first value


@pytest.mark.slow
def test_the_death_of_wandbs_service_is_one_warning(tmp_path, capsys):
    pytest.importorskip("wandb")

    class KillService(L.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if trainer.global_step == 5 and not killed:  # the first four steps have been sent
                core = subprocess.run(["pgrep", "-P", str(os.getpid()), "wandb-core"], capture_output=True, text=True)
                killed.extend(int(number) for number in core.stdout.split())
                for number in killed:
                    os.kill(number, signal.SIGKILL)

    killed: list[int] = []
    module = fit(
        tmp_path,
        max_steps=8,
        callbacks=[KillService()],
        around=lambda trainer: trainer.loggers.append(WandbRun(tmp_path)),
    )
    assert killed and module.global_step == 8
    assert [line["step"] for line in read_jsonl(tmp_path / "metrics.jsonl")] == list(range(1, 9))
    assert " ".join(capsys.readouterr().out.split()).count("W&B stopped") == 1
