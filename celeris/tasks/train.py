"""The body of train.py: puts the rooms together and lets them train."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from celeris.config.check import check_config, check_hydra
from celeris.config.plugins import load_plugins
from celeris.config.schema import TrainConfig
from celeris.data.text_data import TextData
from celeris.embedding import FrozenEmbedding
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.streams import stream
from celeris.tasks.fine_tune import checkpoint_model, origin
from celeris.tasks.run_directory import Run, in_cluster_job, is_first_rank, open_run
from celeris.tasks.run_files import write_run_files
from celeris.tasks.text import build_data, make_paths_absolute, plain_spec, unigram_entropy
from celeris.tokenizer import TextTokenizer


def train(config: DictConfig) -> None:
    """Train what `config` (configs/train.yaml) describes, in runs/<experiment>/<run id>/."""
    hydra = HydraConfig.get()
    load_plugins(config)
    check_config(config, TrainConfig)
    check_hydra(hydra)
    many = hydra.mode == RunMode.MULTIRUN
    experiment = str(hydra.runtime.choices.get("experiment") or "custom")
    run = open_run(
        Path(config.paths.runs_dir) / experiment, config.run_id, config.ckpt, hydra.job.num if many else None
    )
    config.paths.run_dir = str(run.folder)
    make_paths_absolute(config.data)
    if config.threads is not None:
        torch.set_num_threads(config.threads)

    start = None if config.init_from is None else checkpoint_model(config)
    data = build_data(config.data, None if start is None else start.tokenizer)
    if start is None:
        model = build_model(config, data)
    else:
        fill_vocabulary(config, data)
        model = start
    if config.get("adapter") is not None:
        model = instantiate(config.adapter)(model)
    module = instantiate(config.module, _convert_="all")(
        model, instantiate(config.objective, _convert_="all"), identity={"data": data.fingerprint}
    )
    datamodule = instantiate(config.datamodule, _convert_="all")(data)
    told = {"experiment": experiment, "data": data.describe(), "run": f"{experiment}/{run.id}"}
    trainer = build_trainer(config, told | ({} if start is None else origin(start)))
    check_ranks(trainer, many)
    if is_first_rank():
        write_run_files(run.folder, config)
        _announce(run, config, model)
    trainer.fit(module, datamodule=datamodule, ckpt_path=str(run.resume_from) if run.resume_from else None)
    _finish(run, config, trainer)


def fill_vocabulary(config: DictConfig, data: TextData) -> None:
    """Tell the configuration what `data` says about tokens."""
    tokenizer = data.tokenizer
    config.vocabulary = {
        "size": tokenizer.vocab_size,
        "pad_id": tokenizer.pad_id,
        "eos_id": tokenizer.eos_id,
        "unk_id": tokenizer.unk_id,
        "entropy": unigram_entropy(data.unigram_counts()),
    }


def build_model(config: DictConfig, data: TextData) -> LanguageModel:
    """The model for the vocabulary of `data`, initialised from the stream "init" of the run's seed."""
    fill_vocabulary(config, data)
    tokenizer, counts = data.tokenizer, data.unigram_counts()
    torch.manual_seed(stream(config.seed, "init"))
    spec = OmegaConf.to_container(config.model, resolve=True)
    assert isinstance(spec, dict)
    # Named only where there are roles, so that models of plain text keep the record they always had.
    roles = {"role_ids": tokenizer.role_ids} if tokenizer.roles else {}
    model = LanguageModel.from_spec({str(key): value for key, value in spec.items()} | roles)
    model.set_unigram(torch.from_numpy(counts))
    model.tokenizer = tokenizer
    if config.embedding_table is not None:
        fill_embedding(model, instantiate(config.embedding_table, _convert_="all"))
    return model


def fill_embedding(model: LanguageModel, table: Callable[[TextTokenizer, int], Tensor]) -> None:
    """Give a frozen embedding the rows that `table` makes for the tokenizer of `model`.

    Raises:
        CelerisError: the embedding is trained, so it has no use for them.
    """
    embedding = getattr(model, "embedding", None)
    if not isinstance(embedding, FrozenEmbedding):
        raise CelerisError(
            f"embedding_table fills a FrozenEmbedding, not a {type(embedding).__name__}; "
            "choose embedding=frozen_pretrained, or set embedding_table=null."
        )
    assert model.tokenizer is not None
    embedding.fill(table(model.tokenizer, embedding.dim))


def build_trainer(config: DictConfig, info: dict[str, Any]) -> Any:
    """The trainer with its callbacks and loggers; `info` goes into the export."""
    callbacks = {
        name: instantiate(node, _convert_="all") for name, node in config.callbacks.items() if node is not None
    }
    if "export" in callbacks:  # not through instantiate, which would build the records in it
        callbacks["export"].info = {**info, "data_spec": plain_spec(config.data)}
    from celeris.training.loggers import MetricsFile  # imports Lightning, which takes seconds

    loggers = [instantiate(node, _convert_="all") for node in config.logger.values() if node is not None]
    trainer = instantiate(config.trainer, _convert_="all")
    try:
        return trainer(callbacks=list(callbacks.values()), loggers=[MetricsFile(config.paths.run_dir), *loggers])
    except CelerisError:
        raise
    except Exception as error:  # whatever Lightning says here is about the settings it was given
        raise CelerisError(f"The trainer refuses its settings: {str(error).splitlines()[0]}") from error


def check_ranks(trainer: Any, many: bool) -> None:
    """Refuse what would hang or train on half of the machine.

    Args:
        trainer: about to start.
        many: whether this is one job of a multirun.

    Raises:
        CelerisError: SLURM started another number of tasks than the trainer expects, or a multirun would start ranks
            that each run the whole multirun again.
    """
    expected, tasks = trainer.num_devices * trainer.num_nodes, os.environ.get("SLURM_NTASKS")
    if tasks is not None and in_cluster_job() and int(tasks) != expected:
        raise CelerisError(
            f"SLURM has ntasks={tasks}, the trainer devices={trainer.num_devices} on {trainer.num_nodes} node(s); "
            f"start {expected} task(s) with srun, or set trainer.devices= and trainer.num_nodes=."
        )
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if many and trainer.world_size > 1 and environment and not environment.creates_processes_externally:
        raise CelerisError(
            "A multirun cannot start several ranks itself; use a launcher (hydra/launcher=) or one device."
        )


def _announce(run: Run, config: DictConfig, model: LanguageModel) -> None:
    print(f"run {run.folder}: {model.num_parameters:,} parameters, {config.trainer.max_steps:,} steps")
    if run.resume_from is not None:
        print(f"continuing from {run.resume_from}")
    elif config.ckpt is not None:
        print("no checkpoint there yet: starting from the beginning")


def _finish(run: Run, config: DictConfig, trainer: Any) -> None:
    """Say where things are; a run stopped by a signal ends with the status a shell gives it (128 + its number)."""
    signals = [number for callback in trainer.callbacks if (number := getattr(callback, "received", None))]
    if is_first_rank():
        print(f"{trainer.global_step:,} steps done; the weights for sample.py and evaluate.py are in the run's export/")
        if trainer.global_step < config.trainer.max_steps:
            print(f"to continue: the same command with run_id={run.id} ckpt=last")
    if signals:
        raise SystemExit(128 + signals[0])
