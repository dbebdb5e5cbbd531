"""Two processes on the CPU with everything in shards: the run is that of DDP, and goes on with any number of ranks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from celeris.model import DiffusionLM
from celeris.sampling import generate
from celeris.training.checkpoint_folder import read_folder
from celeris.training.loggers import read_jsonl

from .sharded import STEPS, train

pytestmark = pytest.mark.slow


def launch(what: str, folder: Path, ranks: int) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*torchrun, "-m", "tests.training.sharded", what, str(folder)]
    subprocess.run(command, cwd=Path(__file__).parents[2], env=env, check=True, timeout=1200)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fsdp")
    launch("straight", folder, 2)
    return folder


def state(folder: Path) -> dict:
    last = folder / "checkpoints" / "last.ckpt"
    return read_folder(last) if last.is_dir() else torch.load(last, weights_only=True)


def numbers(folder: Path) -> dict[tuple[int, str], float]:
    """Everything measured, by step and name, speed and clock aside."""
    lines = read_jsonl(folder / "metrics.jsonl")
    return {
        (line["step"], key): value
        for line in lines
        for key, value in line.items()
        if key.split("/")[0] in ("train", "val", "embedding")
    }


def largest(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((value.double() - b[name].double()).abs().max()) for name, value in a.items())


def compare(one: Path, other: Path, tolerance: float, since: int = 0) -> dict[str, float]:
    """Hold all that was measured after step `since` together; how far the two runs end from each other."""
    a, b = numbers(one), numbers(other)
    common = {key for key in a if key[0] > since}
    assert common == {key for key in b if key[0] > since} and (STEPS, "train/loss") in common
    apart = {key: abs(a[key] - b[key]) for key in common}
    worst = max(apart, key=lambda key: apart[key])
    first, second = state(one), state(other)
    averages = [x["celeris"]["ema"] for x in (first, second)]
    ends = {
        "norm": max(value for (_, name), value in apart.items() if name == "train/grad_norm"),
        "weights": largest(first["state_dict"], second["state_dict"]),
        "average": largest(*(x["average"] for x in averages)),
    }
    print(f"{one.name} and {other.name}: {apart[worst]:.1e} ({worst[1]} of step {worst[0]}), {ends}")
    assert apart[worst] < tolerance
    assert [x["num_updates"] for x in averages] == [STEPS, STEPS]
    return ends


@pytest.mark.parametrize(("kind", "tolerance"), [("muon", 1e-4), ("half", 5e-3), ("plain", 1e-5)])
def test_shards_train_like_whole_weights(runs: Path, kind: str, tolerance: float) -> None:
    """Losses, held-out losses and the norm that is clipped by, of 8 steps on two ranks."""
    ends = compare(runs / f"{kind}_ddp", runs / f"{kind}_fsdp", tolerance)
    if kind == "plain":  # see `linear`
        assert max(ends.values()) < 1e-5


def test_the_export_is_that_of_ddp_and_writes(runs: Path) -> None:
    sharded, whole = (DiffusionLM.from_pretrained(runs / f"plain_{kind}" / "export") for kind in ("fsdp", "ddp"))
    assert largest(sharded.state_dict(), whole.state_dict()) < 1e-5
    assert sharded.info["weights"] == "ema" and sharded.info["ema_updates"] == STEPS
    average = state(runs / "plain_fsdp")["celeris"]["ema"]["average"]
    assert largest(average, dict(sharded.named_parameters())) == 0
    texts = [
        generate(one, prompts=["abc"], max_new_tokens=8, num_inference_steps=4, seed=7).texts
        for one in (sharded, whole)
    ]
    assert texts[0] == texts[1] and len(texts[0]) == 1


def test_it_goes_on_with_one_rank_then_with_two_and_from_a_file(runs: Path) -> None:
    whole = runs / "muon_fsdp"
    launch("one", runs, 1)
    compare(whole, runs / "one", 1e-4, since=4)
    launch("two", runs, 2)
    compare(whole, runs / "two", 1e-4, since=6)
    compare(whole, runs / "file", 1e-4, since=4)


def test_a_run_without_shards_goes_on_from_a_folder(runs: Path, tmp_path: Path) -> None:
    folder = runs / "plain"
    train(folder, "muon", runs / "muon_fsdp" / "checkpoints" / "step_00000004.ckpt")
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    compare(runs / "muon_fsdp", folder, 1e-4, since=4)
