"""`python train.py … estimate=true`: what the run would need and how long it would take, without running it."""

from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from celeris.denoiser.attention import backend
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.scaling.estimate import Estimate, estimate
from celeris.scaling.hardware import Hardware
from celeris.scaling.plan import Plan
from celeris.scaling.report import report
from celeris.scaling.trace import Trace, fake_model, plain_rows, trace_step
from celeris.tasks.text import build_data, make_paths_absolute
from celeris.training.recompute import recompute

PAST_EVERY_WARM_UP = 10**12
"""Number of the first row of a counted step, so that an objective with a warm-up counts as what follows it."""


def print_estimate(config: DictConfig) -> None:
    print(report(estimate_run(config)))


def estimate_run(config: DictConfig) -> Estimate:
    """Of the run that `config` (configs/train.yaml) describes, on `config.hardware`."""
    hardware = instantiate(config.hardware)
    plan = plan_of(config, hardware)
    return estimate(trace_run(config, plan.micro_batch), plan, hardware)


def plan_of(config: DictConfig, hardware: Hardware) -> Plan:
    """How the configuration lays the run over devices."""
    ranks = devices_of(config.trainer.devices, config.trainer.accelerator, hardware) * config.trainer.num_nodes
    return Plan(
        ranks=ranks,
        sharded=is_sharded(config),
        micro_batch=config.micro_batch_size or max(1, config.global_batch_size // ranks),
        global_batch=config.global_batch_size,
        length=config.length,
        steps=config.trainer.max_steps,
        half=is_half(config),
    )


def is_sharded(config: DictConfig) -> bool:
    """A strategy that only has a name is one of Lightning's with whole weights on every rank."""
    return not isinstance(config.trainer.strategy, str)


def is_half(config: DictConfig) -> bool:
    return str(config.trainer.precision) == "bf16-mixed"


def devices_of(devices: Any, accelerator: str, hardware: Hardware) -> int:
    """Of a node: as many as asked for; all of it for -1 and for `auto` on a GPU."""
    if isinstance(devices, int) and devices > 0:
        return devices
    if devices == -1 or (devices == "auto" and accelerator != "cpu"):
        return hardware.devices_per_node
    raise CelerisError(f"trainer.devices={devices} does not say how many; give a number with trainer.devices=.")


def trace_run(config: DictConfig, micro_batch: int) -> Trace:
    """A micro-batch of so many rows and an update, counted."""
    fill_vocabulary(config)
    spec = OmegaConf.to_container(config.model, resolve=True)
    assert isinstance(spec, dict)
    model = fake_model({str(key): value for key, value in spec.items()})
    if isinstance(model, DiffusionLM):
        model.denoiser.attend = backend("sdpa")  # torch's kernel, as on a GPU without flash-attn
    module = instantiate(config.module, _convert_="all").keywords
    if module["recompute_layers"]:
        recompute(model.layers)
    ids, index = plain_rows(micro_batch, config.length, model.vocab_size, PAST_EVERY_WARM_UP)
    layout = instantiate(config.layout, _convert_="all")
    batch = layout(ids, index, seed=config.seed, pad_id=model.pad_id)
    ema = module["ema"]
    return trace_step(
        model,
        instantiate(config.objective, _convert_="all"),
        module["optimizer"],
        ema.update,
        lambda: (ema.average or {}).values(),
        batch,
        is_half(config),
        torch.bfloat16 if is_sharded(config) and is_half(config) else torch.float32,
    )


def fill_vocabulary(config: DictConfig) -> None:
    """Give the configuration a vocabulary of the right size, without reading the text where its size is known."""
    if config.vocabulary.size is None:
        builder = instantiate(config.tokenizer, _convert_="all")
        if not builder.trained:
            config.vocabulary.size = builder(()).vocab_size
        elif getattr(builder, "vocab_size", None):
            config.vocabulary.size = builder.vocab_size
        else:
            make_paths_absolute(config.data)
            config.vocabulary.size = build_data(config.data).tokenizer.vocab_size
    config.vocabulary = {"pad_id": 0, "eos_id": 1, "unk_id": None, "entropy": 3.0, "size": config.vocabulary.size}
