"""What happens around the steps; each callback one file."""

from celeris.training.callbacks.checkpoints import Checkpoints
from celeris.training.callbacks.embedding_health import EmbeddingHealth
from celeris.training.callbacks.export import Export
from celeris.training.callbacks.progress_bar import ProgressBar
from celeris.training.callbacks.samples import Samples
from celeris.training.callbacks.schedule_plot import SchedulePlot
from celeris.training.callbacks.signals import StopOnSignal
from celeris.training.callbacks.speed import Speed
from celeris.training.callbacks.step_metrics import StepMetrics
from celeris.training.callbacks.watchdog import Watchdog

__all__ = [
    "Checkpoints",
    "EmbeddingHealth",
    "Export",
    "ProgressBar",
    "Samples",
    "SchedulePlot",
    "Speed",
    "StepMetrics",
    "StopOnSignal",
    "Watchdog",
]
