"""Where a run's numbers go. Nothing here imports wandb before it is used."""

from celeris.training.loggers.metrics_file import MetricsFile, read_jsonl
from celeris.training.loggers.wandb_run import WandbRun

__all__ = ["MetricsFile", "WandbRun", "read_jsonl"]
