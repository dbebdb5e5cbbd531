"""What was measured is not measured again, and what might be another thing is."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from celeris.evaluation import bench, reading, samples, store
from celeris.evaluation.quality import Quality
from celeris.evaluation.record import Section, Subject
from celeris.evaluation.store import Store

from .fakes import PROSE, FakeScorer, subject
from .test_quality import FakeMauve


def real_text(row: int, steps: int) -> str:
    return PROSE[(row * 37) % 200 :]


def metric(scorer: FakeScorer | None = None, mauve: FakeMauve | None = None, **arguments: Any) -> Quality:
    arguments = {"num_inference_steps": [4, 8], "num_samples": 3, "length": 48, **arguments}
    return Quality(scorer or FakeScorer(), mauve or FakeMauve(), **arguments)


def calls(about: Subject) -> Sequence[dict[str, Any]]:
    assert about.model.sampler is not None
    return about.model.sampler.calls


def test_a_second_evaluation_samples_nothing_scores_nothing_and_says_what_it_kept(tmp_path: Path):
    first, scorer, mauve = subject(real_text, next_token=True, store=Store(tmp_path)), FakeScorer(), FakeMauve()
    record = metric(scorer, mauve)(first).record
    assert calls(first) and scorer.read and mauve.asked and first.store.found == []
    again, scorer, mauve = subject(real_text, next_token=True, store=Store(tmp_path)), FakeScorer(), FakeMauve()
    same = metric(scorer, mauve)(again).record
    assert calls(again) == [] and scorer.read == [] and mauve.asked == []
    assert json.dumps(same) == json.dumps(record)  # the seconds, too, are those of when the samples were made
    kinds = ("samples", "scores", "statistics", "self-bleu", "copied", "mauve")
    for label in ("fake, 4 steps, T 0.7", "fake, 8 steps, T 0.7", "fake, next token, T 1"):
        assert {f"{kind} of {label}" for kind in kinds} <= set(again.store.found)


def test_fresh_measures_again(tmp_path: Path):
    for fresh in (False, True):
        about, scorer = subject(real_text, store=Store(tmp_path, fresh)), FakeScorer()
        metric(scorer)(about)
        assert calls(about) and scorer.read and about.store.found == []


@pytest.mark.parametrize(
    ("change", "sampled", "scored"),
    [
        ({"num_samples": 2}, True, True),
        ({"length": 32}, True, True),
        ({"temperatures": [0.9]}, True, False),  # this sampler writes the same texts, which have been read
        ({"score_characters": 60}, False, True),
        ({"num_inference_steps": [8]}, False, False),
        ({"show": 1}, False, False),
    ],
)
def test_only_what_changed_is_measured(tmp_path: Path, change: dict, sampled: bool, scored: bool):
    metric()(subject(real_text, store=Store(tmp_path)))
    about, scorer = subject(real_text, store=Store(tmp_path)), FakeScorer()
    metric(scorer, **change)(about)
    assert bool(calls(about)) is sampled and bool(scorer.read) is scored


def test_other_weights_another_seed_or_another_scorer_share_nothing(tmp_path: Path):
    metric()(subject(real_text, store=Store(tmp_path)))
    about = subject(real_text, store=Store(tmp_path))
    about.model.weight_hash = "another"
    metric()(about)
    assert calls(about)
    about = subject(real_text, store=Store(tmp_path))
    metric()(Subject(about.model, about.data, about.tokenizer, seed=6, store=about.store))
    assert calls(about)
    scorer = FakeScorer()
    scorer.scoring = {**scorer.scoring, "window": 9}
    metric(scorer)(subject(real_text, store=Store(tmp_path)))
    assert scorer.read


def test_a_file_cut_short_is_measured_again_and_mended(tmp_path: Path):
    metric()(subject(real_text, store=Store(tmp_path)))
    damaged = [*tmp_path.glob("samples-*.json"), *tmp_path.glob("scores-*.json")]
    for file in damaged:
        file.write_text(file.read_text()[: -len(file.read_text()) // 2])
    about, scorer = subject(real_text, store=Store(tmp_path)), FakeScorer()
    metric(scorer)(about)
    assert len(calls(about)) == 4 and scorer.read  # a warm-up and a batch for each of two settings
    assert all(json.loads(file.read_text())["value"] for file in damaged)


def test_changed_code_measures_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def get(text: str) -> list[str]:
        (tmp_path / "package" / "room.py").write_text(text)
        monkeypatch.setattr(store, "CODE", store.digests(tmp_path / "package"))  # as a new process would
        store.code_hash.cache_clear()
        made: list[str] = []
        kept = Store(tmp_path / "kept")
        kept.get("x", {"a": 1}, lambda: made.append(text), ["room.py"])
        return made

    (tmp_path / "package").mkdir()
    assert get("a = 1") and not get("a = 1") and get("a = 2") and not get("a = 1")
    store.code_hash.cache_clear()


def test_an_edit_while_a_process_runs_does_not_touch_what_it_files(monkeypatch: pytest.MonkeyPatch):
    """Modules are imported once: a result of the old code must not bear the hash of the new."""
    store.code_hash.cache_clear()
    before = store.code_hash(("errors.py",)), store.code_hash(())
    store.code_hash.cache_clear()
    monkeypatch.setattr(Path, "read_bytes", lambda self: b"edited")
    assert (store.code_hash(("errors.py",)), store.code_hash(())) == before
    assert store.CODE.keys() == store.digests(store.PACKAGE).keys() and store.digests(store.PACKAGE) != store.CODE


def test_a_room_that_does_not_exist_is_refused():
    with pytest.raises(FileNotFoundError, match="nowhere"):
        store.code_hash(("nowhere",))


def test_code_of_a_plugin_counts(tmp_path: Path):
    """A class from outside the package takes part in the key, a class of the package or of torch does not."""
    file = samples._source(type(subject().model))
    assert file is not None and file.endswith("fakes.py")
    assert samples._source(Section) is None and samples._source(dict) is None


def test_rooms_exist():
    for rooms in (samples.ROOMS, reading.ROOMS, *bench.ROOMS.values()):
        for room in rooms:
            assert (store.PACKAGE / room).exists(), room


@pytest.mark.parametrize("fresh", [False, True])
def test_an_entry_made_in_this_evaluation_is_not_called_kept(tmp_path: Path, fresh: bool):
    kept, made = Store(tmp_path, fresh), iter([7])
    assert [kept.get("x", {}, lambda: next(made), ["errors.py"]) for _ in "12"] == [7, 7]
    assert kept.found == []


def test_without_a_folder_nothing_is_kept(tmp_path: Path):
    about = subject(real_text)
    metric()(about)
    metric()(about)
    assert about.store.found == [] and len(calls(about)) == 8
