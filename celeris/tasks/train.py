"""The body of train.py: puts the rooms together and lets them train."""

import signal
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
from celeris.tasks.estimate import print_estimate
from celeris.tasks.fine_tune import checkpoint_model, origin
from celeris.tasks.parent import end_with_first_rank
from celeris.tasks.ranks import adopt_local_tasks, check_ranks, is_first_rank
from celeris.tasks.run_directory import Run, open_run
from celeris.tasks.run_files import check_same_run, write_run_files
from celeris.tasks.text import build_data, make_paths_absolute, plain_spec, unigram_entropy
from celeris.tokenizer import TextTokenizer


def train(config: DictConfig) -> None:
    """Train what `config` (configs/train.yaml) describes, in runs/<experiment>/<run id>/."""
    end_with_first_rank()
    hydra = HydraConfig.get()
    load_plugins(config)
    check_config(config, TrainConfig)
    check_hydra(hydra)
    if config.estimate:
        return print_estimate(config)
    adopt_local_tasks()
    many = hydra.mode == RunMode.MULTIRUN
    experiment = str(hydra.runtime.choices.get("experiment") or "custom")
    run = open_run(
        Path(config.paths.runs_dir) / experiment, config.run_id, config.ckpt, hydra.job.num if many else None
    )
    config.paths.run_dir = str(run.folder)
    make_paths_absolute(config.data)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    trainer = build_trainer(config)
    check_ranks(trainer, many)  # before hours of tokenizing
    if config.micro_batch_size is None:
        config.micro_batch_size = config.global_batch_size // trainer.world_size

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
    tell_exports(trainer, {**told, **({} if start is None else origin(start)), "data_spec": plain_spec(config.data)})
    if run.own:
        check_same_run(run.folder, config)
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


def build_trainer(config: DictConfig) -> Any:
    """The trainer with its callbacks and loggers."""
    callbacks = [instantiate(node, _convert_="all") for node in config.callbacks.values() if node is not None]
    from celeris.training.loggers import MetricsFile  # imports Lightning, which takes seconds

    loggers = [instantiate(node, _convert_="all") for node in config.logger.values() if node is not None]
    trainer = instantiate(config.trainer, _convert_="all")
    try:
        return trainer(callbacks=callbacks, loggers=[MetricsFile(config.paths.run_dir), *loggers])
    except CelerisError:
        raise
    except Exception as error:  # whatever Lightning says here is about the settings it was given
        raise CelerisError(f"The trainer refuses its settings: {str(error).splitlines()[0]}") from error


def tell_exports(trainer: Any, info: dict[str, Any]) -> None:
    """Give the callback that exports what goes with the weights."""
    from celeris.training.callbacks import Export

    for callback in trainer.callbacks:
        if isinstance(callback, Export):
            callback.info = info


def _announce(run: Run, config: DictConfig, model: LanguageModel) -> None:
    print(f"run {run.folder}: {model.num_parameters:,} parameters, {config.trainer.max_steps:,} steps")
    if run.resume_from is not None:
        if config.ckpt in (None, "last") and run.resume_from.name != "last.ckpt":
            print(f"warning: {run.checkpoints / 'last.ckpt'} is damaged; this is the newest whole checkpoint")
        print(f"continuing from {run.resume_from}")
    elif config.ckpt is not None:
        print("no checkpoint there yet: starting from the beginning")


def _finish(run: Run, config: DictConfig, trainer: Any) -> None:
    """Say where things are; a run stopped by a signal ends with the status a shell gives it (128 + its number).

    Only the first rank has that status, since launchers take any rank's failure for the job's and kill the others. A
    signal that had another owner before the training goes on to it, now that everything is saved: submitit puts a
    preempted job back into the queue (and ends the first rank itself).
    """
    if not is_first_rank():
        return
    print(f"{trainer.global_step:,} steps done; the weights for sample.py and evaluate.py are in the run's export/")
    if trainer.global_step < config.trainer.max_steps:
        print(f"to continue: the same command with run_id={run.id} ckpt=last")
    for number in [callback.received for callback in trainer.callbacks if getattr(callback, "received", None)]:
        owner = signal.getsignal(number)
        if callable(owner) and owner is not signal.default_int_handler:
            owner(number, None)
        raise SystemExit(128 + number)
