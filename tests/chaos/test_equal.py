"""A run is the same on one process and on two: losses, weights, samples, refused steps, resumes."""

import math
from pathlib import Path

import pytest

from tests.chaos import ranks, runs

pytestmark = pytest.mark.slow
STEPS = 20


def train(place: Path, run: str, world_size: int, *more: str, **how: int) -> list[int | None]:
    """Exit statuses of the ranks."""
    runs.corpus(place)
    words = runs.words(place, run, *more, ranks=world_size, **{"steps": STEPS, **how})
    started = ranks.start(words, world_size, place / "logs" / run)
    codes = ranks.finish(started, 600)
    print(ranks.logs(started))
    return codes


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a run on one process, which accumulates two micro-batches of 4 rows."""
    place = tmp_path_factory.mktemp("chaos")
    assert train(place, "one", 1) == [0]
    return place


def assert_same(place: Path, run: str, other: str = "one", weights: bool = True) -> None:
    """Of the losses, and of everything a checkpoint holds where the gradients are summed in the same order.

    Muon and Adam make steps of gradients that are rounding and nothing else, so another order shows in a few weights.
    """
    first, second = runs.losses(place, other), runs.losses(place, run)
    assert first.keys() == second.keys() == set(range(1, STEPS + 1))
    assert max(abs(first[step] - second[step]) for step in first) < 1e-5
    one, two = (runs.weights(runs.last(place, name)) for name in (other, run))
    assert not weights or runs.distance(one, two) < 1e-6
    runs.check_samples(place, run, STEPS)


def test_two_processes_are_one(one: Path) -> None:
    """With an online fit, per-token noise, given spans, self-conditioning and dropout, to the last bit of rounding."""
    assert train(one, "two", 2) == [0, 0]
    assert_same(one, "two")
    seen = runs.samples(one, "two")
    assert all(set(step) == {0, 1} and len(step[0]) == len(step[1]) == 4 for step in seen.values())


def test_dropout_is_that_of_the_micro_batch_and_not_of_the_rank(one: Path) -> None:
    dropout = "model.denoiser.dropout=0.2"
    assert train(one, "one_dropout", 1, dropout) == [0]
    assert train(one, "two_dropout", 2, dropout) == [0, 0]
    assert_same(one, "two_dropout", "one_dropout")


def test_micro_batches_of_another_size(one: Path) -> None:
    """1 × 8, 2 × 4 and 2 × 2 twice, where not every position counts: a step's means are taken over all of it."""
    assert train(one, "one_whole", 1, rows=8) == [0]
    assert train(one, "two_quarters", 2, rows=2) == [0, 0]
    assert_same(one, "one_whole", weights=False)
    assert_same(one, "two_quarters", weights=False)


def test_resume_on_another_number_of_ranks(one: Path) -> None:
    """1 → 2 → 1 ranks, both changes inside a pass over the text: nothing of the change is left in the run."""
    for world_size, until in ((1, 7), (2, 13), (1, STEPS)):
        changed = [f"module.lr_schedule.warmup_steps={STEPS}", "module.lr_schedule.decay_fraction=0"]
        codes = train(one, "changing", world_size, *changed, steps=until)
        assert codes == [0] * world_size
    assert train(one, "unchanged", 1, *changed) == [0]
    assert_same(one, "changing", "unchanged")


def test_a_loss_that_is_no_number_on_one_rank_stops_all(one: Path) -> None:
    broken = ["+callbacks.nan._target_=chaos_points.NotANumber", "+callbacks.nan.rank=1", "+callbacks.nan.step=5"]
    assert train(one, "stopped", 2, *broken, "callbacks.checkpoints.every_n_steps=5") == [2, 2]
    assert "step 6 is not finite" in (one / "logs" / "stopped" / "rank-0.log").read_text()
    assert runs.last(one, "stopped")["global_step"] == 5
    # The same command without the fault goes on as if nothing had been.
    assert train(one, "stopped", 2) == [0, 0]
    assert_same(one, "stopped")


def test_a_skipped_step_is_skipped_and_counted_on_all(one: Path) -> None:
    broken = ["+callbacks.nan._target_=chaos_points.NotANumber", "+callbacks.nan.rank=1", "+callbacks.nan.step=5"]
    saved = ["module.guard.skip_budget=1", "callbacks.checkpoints.every_n_steps=1", "callbacks.checkpoints.keep=9"]
    assert train(one, "skipped", 2, *broken, *saved, steps=7) == [0, 0]
    folder = runs.folder(one, "skipped") / "checkpoints"
    five, six = (runs.weights(runs.load(folder / f"step_{step:08d}.ckpt")) for step in (5, 6))
    assert (five["celeris"]["guard"]["skipped"], six["celeris"]["guard"]["skipped"]) == (0, 1)
    assert runs.distance(five["state_dict"], six["state_dict"]) == 0  # weights, and what the online fit has learned
    assert runs.distance(five["celeris"]["ema"], six["celeris"]["ema"]) == 0
    lines = runs.read_jsonl(runs.folder(one, "skipped") / "metrics.jsonl")
    found = {line["step"]: (line["train/loss"], line["train/skipped_steps"]) for line in lines if "train/loss" in line}
    assert found[6] == ("nan", 1) and all(math.isfinite(found[step][0]) for step in found if step != 6)
