"""The reproductions: each builds at its published size, and its twin is the same method, trains and loads."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from celeris.config.check import check_config
from celeris.config.compose import compose_config
from celeris.config.overrides import quoted
from celeris.config.schema import TrainConfig
from celeris.data import embedding_tables
from celeris.embedding import FrozenEmbedding
from celeris.model import DiffusionLM
from celeris.tokenizer import character_backend

MILLIONS = {"diffusion_lm": 93.1, "cdcd": 33.4, "plaid": 33.4, "langflow": 94.7, "elf_small": 93.2}  # of the trunk
TWIN_SIZE = (1.0e6, 1.1e6)  # all parameters, for characters; experiment=tiny has about as many

# What a twin may change: text and size, and what belongs to the length of a run. Everything else is the method.
SIZES = (
    "data", "tokenizer", "length", "global_batch_size", "micro_batch_size", "embedding.dim", "model.denoiser.width",
    "model.denoiser.depth", "model.denoiser.heads", "model.denoiser.cond_dim", "model.denoiser.dropout",
    "schedule.features", "schedule.mu", "schedule.beta", "schedule.entropy",
    "optimizer.lr", "optimizer.muon_lr", "optimizer.weight_decay", "module.lr_schedule", "module.ema",
    "trainer.max_steps", "trainer.precision",
)  # fmt: skip


def composed(name: str, *words: str) -> DictConfig:
    config = compose_config("train", [f"experiment=repro/{name}", *words])
    check_config(config, TrainConfig)
    config.vocabulary = {"size": 100, "pad_id": 0, "eos_id": 1, "unk_id": 2, "entropy": 2.9}
    config.paths.run_dir = "/nowhere"
    return config


def model_of(config: DictConfig) -> DiffusionLM:
    spec = OmegaConf.to_container(config.model, resolve=True)
    assert isinstance(spec, dict)
    return DiffusionLM.from_spec({str(key): value for key, value in spec.items()})


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


@pytest.mark.slow
@pytest.mark.parametrize("name", MILLIONS)
def test_the_published_size(name: str) -> None:
    model = model_of(composed(name))
    trunk = sum(p.numel() for p in model.denoiser.parameters())
    assert trunk / 1e6 == pytest.approx(MILLIONS[name], abs=0.06)


@pytest.mark.parametrize("name", MILLIONS)
def test_a_twin_is_the_same_method(name: str) -> None:
    paper, twin = (OmegaConf.to_container(composed(word), resolve=False) for word in (name, f"{name}_tiny"))
    mine, theirs = dict(leaves(twin)), dict(leaves(paper))
    changed = {key for key in mine | theirs if mine.get(key) != theirs.get(key)}
    assert {key for key in changed if not key.startswith(SIZES)} == set()
    model = model_of(composed(f"{name}_tiny"))
    table = model.embedding.weight.numel() if isinstance(model.embedding, FrozenEmbedding) else 0
    assert TWIN_SIZE[0] < model.num_parameters + table < TWIN_SIZE[1]


@pytest.mark.parametrize("name", MILLIONS)
def test_the_whole_row_is_denoised_at_one_level_with_nothing_of_ours(name: str) -> None:
    config = composed(name)
    assert config.block_length == config.length and config.model.stagger == 0
    assert config.layout.p_empty == 1 and config.layout.p_given == 0
    assert [law["_target_"].rsplit(".")[-1] for law in config.levels.laws] == ["Together"]
    assert not (config.model.posterior_input or config.model.next_token_head or config.model.denoiser.left_neighbour)
    assert config.model.denoiser.mixing is None and config.objective.next_token_weight == 0
    assert bool(config.head.get("evidence")) == (name in ("plaid", "langflow"))


def test_levels_are_carried_over_to_rows_of_norm_sqrt_d() -> None:
    """The same state is alpha·e + sigma·eps for unit rows there and rows √D·e here: SNR per coordinate grows by D."""
    plaid, cdcd = composed("plaid"), composed("cdcd")
    dim = plaid.embedding.dim
    for ours, theirs in [(plaid.schedule.gamma_min, -3.0), (plaid.schedule.gamma_max, 6.0)]:
        assert math.exp(-ours) == pytest.approx(math.exp(-theirs) / dim, rel=1e-3)
    for ours, t in [(cdcd.schedule.gamma_min, 2.0), (cdcd.schedule.gamma_max, 300.0)]:
        assert math.exp(-ours) == pytest.approx((256 / t**2) / cdcd.embedding.dim, rel=1e-3)
    elf = composed("elf_small").schedule
    assert math.exp(-elf.gamma_min) == pytest.approx((0.95 / (elf.scale * 0.05)) ** 2, rel=0.01)


@pytest.mark.parametrize("name", MILLIONS)
def test_a_twin_trains_and_its_export_loads(name: str, workplace, command, tmp_path, monkeypatch) -> None:
    rows = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    letters = character_backend(list("abcdefghijklmnopqrstuvwxyz .\n"))
    monkeypatch.setattr(embedding_tables, "package_folder", lambda *names: tmp_path)
    monkeypatch.setattr(embedding_tables, "_smollm2", lambda path: (letters, rows))
    words = [
        f"experiment=repro/{name}_tiny", "data=local_text", f"path={quoted(str(workplace.corpus))}", "run_id=first",
        f"paths.runs_dir={quoted(str(tmp_path))}", f"paths.cache_dir={quoted(str(workplace.cache))}", "length=32",
        "logger=none", "callbacks=none", "trainer.max_steps=2", "model.denoiser.depth=1", "embedding.dim=8",
    ]  # fmt: skip
    result = command("train", *words)
    assert result.code == 0, result.err
    run = tmp_path / "repro" / f"{name}_tiny" / "first"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    assert len(losses) == 2 and all(math.isfinite(loss) for loss in losses)
    assert terms(lines) == TERMS[name]
    monkeypatch.setattr(embedding_tables, "_smollm2", None)
    model = DiffusionLM.from_pretrained(Path(run) / "export")
    out = model.denoise(torch.randn(1, 32, 8), 0.5)
    assert out.logits.isfinite().all() and (out.vector is None) == (name not in ("diffusion_lm", "elf_small"))


TERMS = {
    "diffusion_lm": {"diffusion", "rounding", "prior"},
    "cdcd": {"diffusion"},
    "plaid": {"diffusion", "reconstruction", "prior", "schedule"},
    "langflow": {"diffusion", "schedule"},
    "elf_small": {"diffusion", "prior"},
}


def terms(lines: list[dict[str, Any]]) -> set[str]:
    return {key.removeprefix("train/loss_") for line in lines for key in line if key.startswith("train/loss_")}
