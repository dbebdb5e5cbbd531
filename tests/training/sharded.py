"""What test_fsdp.py runs on several ranks: torchrun … -m tests.training.sharded <what> <folder>.

straight   the same run with DDP and with shards, under two schedules, and in bf16; the update of Muon
one        on one rank: goes on from the middle of the sharded run
two        on two ranks: goes on from the middle of that, and from a file of the DDP run
"""

import math
import sys
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from celeris.data.layouts import Split
from celeris.data.tokenizers import CharTokenizer
from celeris.model import DiffusionLM
from celeris.training.callbacks import EmbeddingHealth, Export
from celeris.training.module import TrainingModule
from celeris.training.optim import Muon
from celeris.training.strategies import FullySharded

from .tiny import BLOCK, DIM, LENGTH, VOCAB, MemoryText, fit, tiny_module

STEPS = 8
FITTED = {"_target_": "celeris.noise.LossCDFSchedule", "gamma_min": -4.0, "gamma_max": 6.0, "bins": 8}
GUMBEL = {"_target_": "celeris.noise.GumbelSchedule", "mu": 1.0}
TOKENIZER = CharTokenizer()([chr(97 + k) for k in range(VOCAB - 3)])


def linear(model: DiffusionLM) -> torch.optim.Optimizer:
    """Linear in the gradient (`plain_descent`), with a state: Muon blows rounding up where a gradient has no rank."""
    return torch.optim.SGD([{"params": model.parameters(), "lr": 0.05, "base_lr": 0.05}], momentum=0.9)


def model(kind: str) -> DiffusionLM:
    torch.manual_seed(0)
    trunk = {"dim": DIM, "width": 16, "depth": 2, "heads": 2, "cond_dim": 7, "mixing": [2, 2]}
    made = DiffusionLM.from_spec(
        {
            "_target_": "celeris.model.DiffusionLM",
            **{"vocab_size": VOCAB, "max_length": LENGTH, "block_length": BLOCK},
            "embedding": {"_target_": "celeris.embedding.TokenEmbedding", "vocab_size": VOCAB, "dim": DIM},
            "schedule": GUMBEL if kind == "muon" else FITTED,
            "denoiser": {"_target_": "celeris.denoiser.Transformer", **trunk},
        }
    )
    made.tokenizer = TOKENIZER
    return made


def text() -> MemoryText:
    """Rows without context, rows with given spans: what a rank computes in a micro-batch depends on its rows."""
    made = MemoryText(rows=41)
    made.layout = Split(p_empty=0.5, p_given=0.3)  # type: ignore[assignment]
    return made


def train(folder: Path, kind: str, ckpt: Path | None = None, **settings: Any) -> TrainingModule:
    watchers: list[L.Callback] = [EmbeddingHealth(every_minutes=1e-9), Export(folder / "export")]
    module = tiny_module(model(kind), **({"optimizer": linear} if kind == "plain" else {}))
    chosen = {"max_steps": STEPS, "every_n_steps": 2, "val_every_n_steps": 4, "callbacks": watchers, **settings}
    return fit(folder, module, ckpt=ckpt, data=text(), **chosen)


def check_muon() -> None:
    """The same steps with whole matrices and with shards; 5 rows on 2 ranks are 3 and 2, and 3 matrices 2 and 1."""
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(3)
    whole = [torch.nn.Parameter(torch.randn(5, 4)) for _ in range(3)] + [torch.nn.Parameter(torch.randn(6, 9))]
    cut = [torch.nn.Parameter(distribute_tensor(p.detach().clone(), mesh, [Shard(0)])) for p in whole]
    optimizers = [Muon(parameters, weight_decay=0.1) for parameters in (whole, cut)]
    worst = 0.0
    for _ in range(3):
        for a, b in zip(whole, cut, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = distribute_tensor(a.grad.clone(), mesh, [Shard(0)])
        for optimizer in optimizers:
            optimizer.step()
        for a, b in zip(whole, cut, strict=True):
            assert isinstance(b, DTensor)
            worst = max(worst, float((a - b.full_tensor()).detach().abs().max()))
    print(f"Muon: largest difference {worst:.1e}")
    assert worst < 1e-6


def straight(folder: Path) -> None:
    for kind in ("muon", "half", "plain"):
        settings: dict[str, Any] = {"devices": 2, "precision": "bf16-mixed" if kind == "half" else "32-true"}
        train(folder / f"{kind}_ddp", kind, strategy="ddp_find_unused_parameters_true", **settings)
        check_shards(train(folder / f"{kind}_fsdp", kind, strategy=FullySharded(), **settings))
    check_muon()


def check_shards(module: TrainingModule) -> None:
    """Each rank holds its half of parameters, averages and optimizer state, and equal buffers."""
    (optimizer,) = [optimizer for optimizer in module.trainer.optimizers]
    assert module.ema.average is not None
    for name, p in module.model.named_parameters():
        average = module.ema.average[name]
        if p.ndim == 0:
            assert not isinstance(p, DTensor) and not isinstance(average, DTensor)
            continue
        assert isinstance(p, DTensor) and isinstance(average, DTensor)
        assert len(p.to_local()) in (len(p) // 2, math.ceil(len(p) / 2)) and p.dtype == average.dtype == torch.float32
        moments = [value for value in optimizer.state[p].values() if value.shape == p.shape]
        assert moments and all(isinstance(value, DTensor) for value in moments)
    for name, buffer in module.named_buffers():
        others = [torch.empty_like(buffer) for _ in range(2)]
        dist.all_gather(others, buffer)
        assert torch.equal(*others), name


def one(folder: Path) -> None:
    middle = folder / "muon_fsdp" / "checkpoints" / "step_00000004.ckpt"
    train(folder / "one", "muon", middle, devices=1, strategy=FullySharded())


def two(folder: Path) -> None:
    for name, start in (("two", "one/checkpoints/step_00000006"), ("file", "muon_ddp/checkpoints/step_00000004")):
        train(folder / name, "muon", folder / f"{start}.ckpt", devices=2, strategy=FullySharded())


if __name__ == "__main__":
    {"straight": straight, "one": one, "two": two}[sys.argv[1]](Path(sys.argv[2]))
