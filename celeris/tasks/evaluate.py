"""The body of evaluate.py: one checkpoint, several side by side, texts from anywhere, or a scheduled check."""

from pathlib import Path

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from celeris.config.check import check_config, check_hydra
from celeris.config.plugins import load_plugins
from celeris.config.schema import EvaluateConfig
from celeris.errors import CelerisError
from celeris.tasks.compare import compare_checkpoints
from celeris.tasks.exports import find_export
from celeris.tasks.history import keep_history
from celeris.tasks.measure import chosen_metrics, loggers, measure, send
from celeris.tasks.texts import measure_texts
from celeris.tasks.watch import watch_checkpoint


def evaluate(config: DictConfig) -> None:
    """Measure what `config` (configs/evaluate.yaml) names: a checkpoint, several of them, or texts from anywhere."""
    load_plugins(config)
    check_config(config, EvaluateConfig)
    check_hydra(HydraConfig.get())
    asked = [key for key in ("compare", "texts", "watch") if config.get(key)]
    if len(asked) > 1:
        raise CelerisError(f"{' and '.join(f'{key}=' for key in asked)} are different tasks; give one of them.")
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    task = {"compare": compare_checkpoints, "texts": measure_texts, "watch": watch_checkpoint}
    (task[asked[0]] if asked else evaluate_checkpoint)(config)


def evaluate_checkpoint(config: DictConfig) -> None:
    """The report of one checkpoint, written into its run."""
    metrics = chosen_metrics(config)  # first: a misspelt name should not cost the loading of a model
    report, model = measure(config, find_export(config.checkpoint, Path(config.paths.runs_dir)), metrics)
    send(report, loggers(config), model)
    report.print_summary()
    if config.history is not None:
        keep_history(config, report)
