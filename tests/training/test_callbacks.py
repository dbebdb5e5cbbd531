import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from celeris.errors import CelerisError
from celeris.noise import GumbelSchedule
from celeris.training.callbacks import EmbeddingHealth, ProgressBar, Samples, SchedulePlot, Speed
from celeris.training.callbacks.embedding_health import embedding_health
from celeris.training.callbacks.periodic import Periodic
from celeris.training.loggers import read_jsonl

from .tiny import BLOCK, LENGTH, fit, tiny_model, tiny_module


def test_looking_does_not_change_what_is_trained(tmp_path, capsys):
    def sampler(model: Any) -> Any:
        assert not model.training and not torch.is_grad_enabled()
        torch.manual_seed(0)
        torch.rand(3)
        return SimpleNamespace(texts=["we [the] people\nof", "second"])

    callbacks = [
        ProgressBar(line_seconds=0),
        Speed(2, peak=1e12),
        Samples(sampler, every_n_steps=2, show=1),
        EmbeddingHealth(every_n_steps=3),
        SchedulePlot(tmp_path / "plots", every_minutes=1e-9),
    ]
    watched, alone = tiny_module(tiny_model(GumbelSchedule(1.0))), tiny_module(tiny_model(GumbelSchedule(1.0)))
    fit(tmp_path / "watched", watched, max_steps=6, callbacks=callbacks)
    fit(tmp_path / "alone", alone, max_steps=6)
    for (name, a), b in zip(watched.state_dict().items(), alone.state_dict().values(), strict=True):
        assert torch.equal(a, b), name

    lines = read_jsonl(tmp_path / "watched" / "metrics.jsonl")
    by_step = {key: [line["step"] for line in lines if key in line] for line in lines for key in line}
    assert by_step["train/loss"] == [1, 2, 3, 4, 5, 6]
    assert by_step["speed/mfu"] == [2, 4, 6] and by_step["embedding/mean_cosine"] == [3, 6]
    assert by_step["schedule/gamma_at_0.5"] == [1, 2, 3, 4, 5, 6]
    assert (tmp_path / "plots" / "schedule.png").stat().st_size > 1000
    table = read_jsonl(tmp_path / "watched" / "samples.jsonl")
    assert [(row["step"], row["text"]) for row in table[:2]] == [(2, "we [the] people\nof"), (2, "second")]
    out = capsys.readouterr().out
    assert "step 6/6  loss" in out and "step 2: we [the] people of" in out and "second" not in out


def test_speed_is_tokens_over_seconds(tmp_path):
    speed = Speed(5)
    fit(tmp_path, max_steps=5, callbacks=[speed])
    line = next(line for line in read_jsonl(tmp_path / "metrics.jsonl") if "speed/step_seconds" in line)
    tokens_per_step = 8 * LENGTH // BLOCK * BLOCK
    product = line["speed/tokens_per_second"] * line["speed/step_seconds"]
    assert product == pytest.approx(tokens_per_step) and "speed/mfu" not in line


class Note(Periodic):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.steps: list[int] = []

    def look(self, trainer: Any, model: Any) -> None:
        self.steps.append(trainer.global_step)


class Broken(Periodic):
    def look(self, trainer: Any, model: Any) -> None:
        raise RuntimeError("no picture")


def test_when_a_periodic_callback_looks(tmp_path):
    by_step, by_clock, late = Note(every_n_steps=3), Note(every_minutes=1e-9), Note(every_minutes=60)
    fit(tmp_path, max_steps=7, callbacks=[by_step, by_clock, late])
    assert by_step.steps == [3, 6, 7] and by_clock.steps == [1, 2, 3, 4, 5, 6, 7] and late.steps == [7]
    with pytest.raises(CelerisError, match="positive"):
        Note()


def test_an_error_while_looking_leaves_the_raw_weights(tmp_path):
    module = tiny_module()
    with pytest.raises(RuntimeError, match="no picture"):
        fit(tmp_path, module, max_steps=7, callbacks=[Broken(every_n_steps=4)])
    straight = fit(tmp_path / "straight", max_steps=4)
    # The two runs end under another max_steps, so compare where the learning rates still agree: before the decay.
    assert module.model.training and straight.global_step == module.global_step == 4
    average = module.ema.average
    assert any(not torch.equal(average[name], p) for name, p in module.model.named_parameters())


def test_embedding_health_of_known_tables():
    orthogonal = math.sqrt(8) * torch.eye(8)
    assert embedding_health(orthogonal) == pytest.approx((0.0, 1.0), abs=1e-6)
    same = torch.ones(5, 4)
    assert embedding_health(same) == pytest.approx((1.0, 0.0), abs=1e-3)
    pairs = torch.cat([orthogonal, orthogonal])  # every row has a twin: 8 pairs of 120 have cosine 1
    assert embedding_health(pairs, rows=3) == pytest.approx((8 / 120, 0.0), abs=1e-3)


def test_collapse_is_said_aloud(tmp_path, capsys):
    module = tiny_module()
    with torch.no_grad():
        module.model.embedding.weight[:] = 1.0 + 0.01 * module.model.embedding.weight
    fit(tmp_path, module, max_steps=1, callbacks=[EmbeddingHealth(every_n_steps=1)])
    assert "collapsing" in capsys.readouterr().out
