"""Every shipped yaml composes, passes the check that users' configurations must pass, and builds what it names."""

from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from celeris.config.check import check_config
from celeris.config.compose import CONFIGS, compose_config
from celeris.config.schema import EvaluateConfig, PrepareConfig, SampleConfig, TrainConfig
from celeris.language_model import LanguageModel
from celeris.scaling.trace import fake_model

SCHEMAS = {"train": TrainConfig, "prepare": PrepareConfig, "sample": SampleConfig, "evaluate": EvaluateConfig}
GROUPS = {  # group -> task that uses it
    **dict.fromkeys(
        ["solver", "decoder", "infilling", "adaptive", "context_overflow", "show", "grid", "guidance"], "sample"
    ),
    **dict.fromkeys(["evaluation"], "evaluate"),
}
MOUNTED = {"sampler": "sampler@callbacks.samples.sampler"}  # group -> where a task has it
PARTS = [
    "evaluation/likelihood",
    "evaluation/quality",
    "evaluation/prompted",
    "evaluation/speed",
    "evaluation/pairs",
    "evaluation/exact_match",
    "evaluation/infilling",
    "evaluation/lengths",
]  # of evaluation/default
FILES = sorted(path.relative_to(CONFIGS).with_suffix("").as_posix() for path in Path(CONFIGS).rglob("*.yaml"))
LARGE = {"base": (120e6, 140e6), "large": (1.2e9, 1.5e9), "xl": (6.5e9, 7.2e9)}  # parameters; built without memory
NEEDED = {  # values only the user can give, and the experiment whose other values fit
    "tokenizer/pretrained": ["tokenizer.name_or_path=some/folder"],
    **{f"model/llama_{size}": [f"experiment=compare/ar_{size}"] for size in ("tiny", "base")},
    **{f"model/mdlm_{size}": [f"experiment=compare/mdlm_{size}"] for size in ("tiny", "base")},
}


def composed(file: str) -> tuple[str, DictConfig]:
    """The task that uses a file, and the task's configuration with that file chosen."""
    group, _, option = file.rpartition("/")
    if not group:
        return option, compose_config(option)
    if group.startswith("experiment/"):
        group, option = "experiment", file.removeprefix("experiment/")
    task = GROUPS.get(group, "train")
    config = compose_config(task, [f"{MOUNTED.get(group, group)}={option}", *NEEDED.get(file, [])])
    return task, config


def with_values(config: DictConfig) -> DictConfig:
    """As train.py fills it in, for a vocabulary of 30."""
    if "vocabulary" in config:
        config.vocabulary = {"size": 30, "pad_id": 0, "eos_id": 1, "unk_id": 2, "entropy": 2.9}
    config.paths.run_dir = "/nowhere"
    return config


def size_of(name: str) -> str:
    """The last word: model/llama_base is a "base"."""
    return name.replace("/", "_").rsplit("_", 1)[-1]


@pytest.mark.parametrize("file", [file for file in FILES if file not in PARTS])
def test_it_composes_passes_the_check_and_builds(file: str) -> None:
    task, config = composed(file)
    check_config(config, SCHEMAS[task])
    OmegaConf.to_container(with_values(config), resolve=True)
    group = file.split("/")[0]
    if (group == "model" and size_of(file) in LARGE) or group in (task, "hydra", "paths", "experiment"):
        return  # a large model is built once, with the experiment; the others name nothing to build
    node = config.callbacks.samples.sampler if group == "sampler" else config[group]
    if group == "model":
        spec = OmegaConf.to_container(node, resolve=True)
        assert isinstance(spec, dict)
        assert LanguageModel.from_spec(spec).num_parameters > 0
    elif group in ("callbacks", "logger", "evaluation"):
        for part in node.values():
            assert part is None or instantiate(part, _convert_="all") is not None
    else:
        assert instantiate(node, _convert_="all") is not None


def test_the_parts_of_the_evaluation_are_all_used() -> None:
    config = compose_config("evaluate")
    assert {f"evaluation/{name}" for name in config.evaluation} == set(PARTS)


@pytest.mark.parametrize("name", [file.removeprefix("experiment/") for file in FILES if file.startswith("experiment/")])
def test_an_experiment_builds_its_model_objective_and_trainer(name: str) -> None:
    words = [f"experiment={name}"]
    large = size_of(name) in LARGE and not name.startswith("ablation")
    if compose_config("train", words).trainer.accelerator == "gpu":
        words.append("trainer=fsdp_cpu")  # there is none here
    config = with_values(compose_config("train", words))
    if large:
        config.vocabulary.size = 50_258  # GPT-2's and PAD
    spec = OmegaConf.to_container(config.model, resolve=True)
    assert isinstance(spec, dict)
    model = fake_model(spec) if large else LanguageModel.from_spec(spec)
    if large:
        least, most = LARGE[size_of(name)]
        assert least < model.num_parameters < most
    assert instantiate(config.optimizer, _convert_="all")(model).param_groups
    assert callable(instantiate(config.objective, _convert_="all"))
    instantiate(config.module, _convert_="all")
    instantiate(config.datamodule, _convert_="all")
    assert instantiate(config.trainer, _convert_="all")(callbacks=[], loggers=[]).max_steps == config.trainer.max_steps
    assert config.global_batch_size % (config.micro_batch_size or config.global_batch_size) == 0
    assert config.length % config.block_length == 0


def test_the_command_of_the_readme_fits_the_window_of_tiny() -> None:
    """`sample.py prompt="Fellow citizens" max_new_tokens=128`."""
    config = compose_config("train", ["experiment=tiny"])
    assert config.model.max_length >= len("Fellow citizens") + 128
    assert not set(compose_config("train", ["experiment=tiny_long"])) - set(config)


ABLATIONS = [file.removeprefix("experiment/") for file in FILES if file.startswith("experiment/ablation/")]


TOGETHER = {  # what cannot be changed alone
    "self_conditioning": {"model", "objective", "trainer"},  # the network's input, its training, steps of equal time
    "block_4": {"block_length", "model", "levels"},  # positions wait for each other in proportion to the block
    "block_8": {"block_length", "model"},
    "token_input_autoregressive": {"token_input", "objective"},
    "recipe": {"block_length", "model", "levels", "token_input", "objective", "trainer"},
}


@pytest.mark.parametrize("name", [name for name in ABLATIONS if name != "ablation/base"])
def test_an_ablation_changes_one_thing_of_the_base(name: str) -> None:
    """What differs lies in one group, or is one value, and the budget stays that of the base."""
    base, other = (
        OmegaConf.to_container(with_values(compose_config("train", [f"experiment={choice}"])), resolve=False)
        for choice in ("ablation/base", name)
    )
    assert isinstance(base, dict) and isinstance(other, dict)
    changed = {key for key in base if base[key] != other[key]}
    together = [parts for start, parts in TOGETHER.items() if name.startswith(f"ablation/{start}")]
    if together:
        assert changed and changed <= together[0]
    else:
        assert len(changed) == 1 and not changed & {"trainer", "seed", "paths", "data", "length", "global_batch_size"}
