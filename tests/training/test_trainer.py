import pytest
import torch

from celeris.data.layouts import AllBlocks
from celeris.errors import CelerisError
from celeris.noise import GumbelSchedule
from celeris.noise.levels import LevelMixture, PerToken, Staggered, Together
from celeris.objectives import CrossEntropy
from celeris.training.data import TextDataModule, accumulation
from celeris.training.export import export
from celeris.training.loggers import read_jsonl
from celeris.training.trainer import build_trainer

from .tiny import BLOCK, MemoryText, fit, plain_descent, tiny_model, tiny_module


def test_accumulation_follows_from_the_batch_sizes():
    assert accumulation(512, 16, 8) == 4 and accumulation(16, 16, 1) == 1 and accumulation(16, None, 4) == 1
    with pytest.raises(CelerisError, match="global_batch_size=10 cannot be shared equally by 4 processes"):
        accumulation(10, None, 4)
    with pytest.raises(CelerisError, match="global_batch_size=10 is not a multiple of micro_batch_size=4"):
        accumulation(10, 4, 1)
    with pytest.raises(CelerisError, match="not a multiple"):
        accumulation(0, 4, 1)


def test_micro_batches_in_which_unequally_many_tokens_count_are_one_large_batch(tmp_path):
    """Weights too, under an optimizer that is linear in the gradient: staggered and independent levels, given spans."""
    runs = []
    for rows in (8, 4, 2, 1):
        objective = CrossEntropy(LevelMixture([Together(), PerToken(), Staggered(0.5, 4.0)], [1, 1, 1]))
        module = tiny_module(tiny_model(dropout=0.0), optimizer=plain_descent, objective=objective)
        data = MemoryText()
        data.layout = AllBlocks(BLOCK, p_given=0.5)
        runs.append(fit(tmp_path / str(rows), module, data=data, max_steps=5, micro_batch_size=rows).model)
    for other in runs[1:]:
        for (name, a), b in zip(runs[0].named_parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(b, a, atol=1e-5, rtol=1e-4, msg=name)


def test_accumulated_micro_batches_are_one_large_batch(tmp_path):
    """Without dropout and with equal token counts, 1 × 8 and 4 × 2 rows give the same run up to rounding."""
    runs, losses = [], []
    for rows in (8, 2):
        module = tiny_module(tiny_model(GumbelSchedule(1.0), dropout=0.0), optimizer=plain_descent)
        runs.append(fit(tmp_path / str(rows), module, max_steps=5, micro_batch_size=rows).model)
        losses.append([line["train/loss"] for line in read_jsonl(tmp_path / str(rows) / "metrics.jsonl")])
    for (name, a), b in zip(runs[0].named_parameters(), runs[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=name)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("wrong", [{"max_steps": 0}, {"val_every_n_steps": 0}])
def test_counts_below_one_are_refused(tmp_path, wrong):
    with pytest.raises(CelerisError, match=next(iter(wrong))):
        build_trainer(**{"max_steps": 3, "global_batch_size": 4, "micro_batch_size": 4, "root_dir": tmp_path, **wrong})


def test_a_time_limit_ends_the_run_with_a_checkpoint(tmp_path):
    module = fit(tmp_path, max_steps=10_000, every_n_steps=100_000, max_time="00:00:00:01")
    assert 0 < module.global_step < 10_000
    saved = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == module.global_step


def test_a_time_limit_is_one_for_each_start(tmp_path):
    """Lightning's own goes on from the checkpoint, so that a requeued job would do nothing."""
    settings = {"max_steps": 10_000, "every_n_steps": 100_000, "max_time": "00:00:00:01"}
    first = fit(tmp_path, **settings).global_step
    again = fit(tmp_path, **settings, ckpt=tmp_path / "checkpoints" / "last.ckpt").global_step
    assert again > first


def test_bf16_mixed_trains_and_keeps_float32_state(tmp_path):
    module = fit(tmp_path, max_steps=3, precision="bf16-mixed", val_every_n_steps=3)
    saved = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert all(v.dtype == torch.float32 for v in saved["state_dict"].values() if v.is_floating_point())
    assert all(torch.isfinite(p).all() for p in module.model.parameters())


def test_sample_counters_stay_on_the_host():
    data = MemoryText()
    batch = data.layout(data.val.ids, torch.arange(5), seed=0, pad_id=0)
    moved = tiny_module().transfer_batch_to_device(batch, torch.device("meta"), 0)
    assert moved.index.tolist() == [0, 1, 2, 3, 4]
    assert {x.device.type for x in (moved.context, moved.canvas, moved.start, moved.given)} == {"meta"}


def test_held_out_batches_are_spread_over_the_rows():
    loaders = TextDataModule(
        MemoryText(val_rows=40), seed=0, global_batch_size=4, micro_batch_size=4, val_batch_size=2, val_batches=4
    )
    loaders.trainer = build_trainer(
        max_steps=1, global_batch_size=4, micro_batch_size=4, root_dir=".", accelerator="cpu"
    )
    first = [batch.index[0].item() for batch in loaders.val_dataloader()]
    assert first == [4, 14, 24, 34]


def test_the_export_holds_the_averaged_weights_and_replaces_an_older_one(tmp_path):
    from safetensors.torch import load_file

    module = fit(tmp_path, max_steps=5)
    for _ in range(2):
        export(module, tmp_path / "export", {"experiment": "tiny"})
    saved = load_file(tmp_path / "export" / "model.safetensors")
    for name, _ in module.model.named_parameters():
        assert torch.equal(saved[name], module.ema.average[name]), name
    assert any(not torch.equal(saved[name], p) for name, p in module.model.named_parameters())
    assert torch.equal(saved["schedule.loss"], module.model.schedule.loss)
    assert sorted(f.name for f in tmp_path.iterdir() if "export" in f.name) == ["export"]
