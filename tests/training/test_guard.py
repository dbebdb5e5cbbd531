import copy

import lightning as L
import pytest
import torch
from torch import nn

from celeris.errors import CelerisError
from celeris.noise.levels import LevelMixture, Together
from celeris.objectives import CrossEntropy
from celeris.training.guard import GradientGuard
from celeris.training.loggers import read_jsonl

from .tiny import fit, tiny_module


def with_gradient(*values: float) -> list[nn.Parameter]:
    params = [nn.Parameter(torch.zeros(1)) for _ in values]
    for p, value in zip(params, values, strict=True):
        p.grad = torch.tensor([value])
    return params


def test_clips_each_set_by_its_own_norm():
    network, schedule = with_gradient(3.0, 4.0), with_gradient(0.5)
    guard = GradientGuard(max_norm=1.0)
    assert guard.clip_and_check([network, schedule], torch.tensor(1.0), 0)
    assert [p.grad.item() for p in network] == pytest.approx([0.6, 0.8], rel=1e-4)
    assert schedule[0].grad.item() == 0.5 and guard.last_norm.item() == 5.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["network", "schedule", "loss"])
def test_refuses_what_is_not_finite(bad, where):
    network = with_gradient(bad if where == "network" else 1.0)
    schedule = with_gradient(bad if where == "schedule" else 1.0)
    loss = torch.tensor(bad if where == "loss" else 1.0)
    guard = GradientGuard(skip_budget=1)
    assert not guard.clip_and_check([network, schedule], loss, 0)
    assert all(p.grad is None for p in (*network, *schedule)) and guard.skipped == 1
    with pytest.raises(CelerisError, match="step 6 is not finite"):
        guard.clip_and_check([with_gradient(1.0), []], torch.tensor(float("nan")), 5)


class NotFiniteAt(CrossEntropy):
    """Multiplies the loss by NaN while sample `poison` is in the batch."""

    def __init__(self, poison: int) -> None:
        super().__init__(LevelMixture([Together()], [1]))
        self.poison = poison

    def forward(self, model, batch, seed):
        output = super().forward(model, batch, seed)
        if model.training and bool((batch.index == self.poison).any()):
            model.schedule.loss.fill_(float("nan"))  # the worst an objective can do to a buffer
            output.loss = output.loss * float("nan")
        return output


def everything(module):
    optimizer = module.trainer.optimizers[0]
    return copy.deepcopy([module.model.state_dict(), module.ema.state_dict(), optimizer.state_dict()])


def assert_same(a, b):
    for x, y in zip(_leaves(a), _leaves(b), strict=True):
        assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y


def _leaves(tree):
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree, key=str) if key != "lr"]
    return [leaf for item in tree for leaf in _leaves(item)] if isinstance(tree, list | tuple) else [tree]


def test_a_stopped_run_leaves_the_state_of_the_step_before(tmp_path):
    good = fit(tmp_path / "good", max_steps=4)  # global batch 8: step 5 holds samples 32 … 39
    bad = tiny_module(objective=NotFiniteAt(35))
    with pytest.raises(CelerisError, match="step 5 is not finite"):
        fit(tmp_path / "bad", bad, max_steps=20)
    assert bad.global_step == 4
    for name, value in bad.model.named_parameters():
        assert torch.isfinite(value).all(), name
    metrics = read_jsonl(tmp_path / "bad" / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [1, 2, 3, 4] and good.global_step == 4


def test_a_skipped_step_changes_nothing_but_the_counters(tmp_path):
    module = tiny_module(objective=NotFiniteAt(35), guard=GradientGuard(skip_budget=2))
    seen = {}

    class Watch(L.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if pl_module.between_steps:
                seen[trainer.global_step] = everything(pl_module)

    fit(tmp_path, module, max_steps=8, callbacks=[Watch()])
    assert_same(seen[4], seen[5])
    assert module.guard.skipped == 1 and module.ema.num_updates == 7 and module.global_step == 8
    assert torch.isfinite(module.model.schedule.loss).all()
    with pytest.raises(AssertionError):
        assert_same(seen[5], seen[6])
    assert [line["train/skipped_steps"] for line in read_jsonl(tmp_path / "metrics.jsonl")] == [0] * 4 + [1] * 4
