"""train.py estimate=true: figures, and nothing else happens."""

import re
from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from celeris.config.compose import compose_config
from celeris.language_model import LanguageModel
from celeris.tasks.estimate import devices_of, estimate_run, fill_vocabulary, plan_of
from celeris.tasks.scaling import main as write_page
from celeris.tasks.scaling import subject_of
from tests.tasks.conftest import Command, quoted


def test_it_prints_and_leaves_nothing(command: Command, tmp_path: Path) -> None:
    """No text is read where the size of the vocabulary is told."""
    done = command(
        "train", "experiment=debug", "data=local_text", "path=/nowhere/at/all.txt", "tokenizer=byte", "estimate=true",
        f"paths.runs_dir={quoted(str(tmp_path / 'runs'))}", f"paths.cache_dir={quoted(str(tmp_path / 'cache'))}",
    )  # fmt: skip
    assert done.code == 0, done
    config = compose_config("train", ["experiment=debug"])
    config.vocabulary = {"size": 258, "pad_id": 0, "eos_id": 1, "unk_id": None, "entropy": 3.0}
    spec = OmegaConf.to_container(config.model, resolve=True)
    assert isinstance(spec, dict)
    assert f"{LanguageModel.from_spec(spec).num_parameters:,}" in done.out
    assert re.search(r"^throughput +[\d,]+ tokens/s", done.out, flags=re.M) and "It fits" in done.out
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_a_sentence(command: Command) -> None:
    words = ("experiment=debug", "tokenizer=byte", "estimate=true", "trainer=ddp")
    assert "is not a multiple of micro_batch_size=1 times 8 rank(s)" in command("train", *words).sentence
    assert "hardware.memory" in command("train", *words, "global_batch_size=32", "hardware.memory=0").sentence


def test_a_baseline_is_counted_too() -> None:
    config = compose_config("train", ["experiment=compare/ar_tiny", "vocabulary.size=90", "hardware=a100"])
    found = estimate_run(config)
    assert found.trace.flops > 0 and found.hardware.name.startswith("A100")


def test_devices_and_sharding_come_from_the_trainer() -> None:
    config = compose_config("train", ["experiment=xl", "trainer.num_nodes=4"])
    hardware = instantiate(config.hardware)
    plan = plan_of(config, hardware)
    assert plan.sharded and plan.half and plan.ranks == 4 * hardware.devices_per_node
    assert not plan_of(compose_config("train", ["experiment=base", "trainer=ddp"]), hardware).sharded
    assert devices_of(3, "gpu", hardware) == 3 and devices_of("auto", "gpu", hardware) == 8


def test_the_size_of_a_vocabulary_is_known_without_text() -> None:
    for words, size in ((["tokenizer=gpt2"], 50_258), (["tokenizer=bpe_32k"], 32_768), (["tokenizer=byte"], 258)):
        config = compose_config("train", ["path=/nowhere/at/all.txt", "data=local_text", *words])
        fill_vocabulary(config)
        assert config.vocabulary.size == size


@pytest.mark.slow
def test_seven_billion_parameters_are_counted_without_their_memory(command: Command) -> None:
    done = command("train", "experiment=xl", "estimate=true")
    assert done.code == 0, done
    assert 6.5e9 < int(re.search(r"^parameters +([\d,]+)$", done.out, flags=re.M)[1].replace(",", "")) < 7.2e9
    assert "It fits" in done.out


def test_the_page_keeps_what_stands_above_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(experiment: str, hardware_name: str):
        monkeypatch.setattr(
            "celeris.tasks.scaling.compose_config",
            lambda task, words: compose_config(
                task, ["experiment=debug", "tokenizer=byte", "global_batch_size=64", *words[1:]]
            ),
        )
        return subject_of("debug", hardware_name)

    monkeypatch.setattr("celeris.tasks.scaling.subject_of", small)
    page = tmp_path / "scaling.md"
    page.write_text("# Scaling\n\nSomebody's text.\n")
    for _ in range(2):
        assert write_page([str(page), "--experiments", "debug"]) == 0
    text = page.read_text()
    assert text.startswith("# Scaling\n\nSomebody's text.\n") and text.count("## `experiment=debug`") == 1
    assert "more GPUs than rows" in text and (tmp_path / "scaling.png").stat().st_size > 1000
