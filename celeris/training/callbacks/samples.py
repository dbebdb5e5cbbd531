"""Text the model writes while it is being trained."""

from collections.abc import Callable
from typing import Any

from rich import get_console
from rich.markup import escape

from celeris.training.callbacks.periodic import Periodic
from celeris.training.reporting import report_table


class Samples(Periodic):
    """Prints a few samples of the averaged weights and logs them as a table.

    Args:
        sampler: model → record with `.texts` (`celeris.sampling.generate` with everything else filled in).
        every_n_steps, every_minutes: see `Periodic`.
        show: texts printed to the console.
    """

    def __init__(
        self,
        sampler: Callable[[Any], Any],
        every_n_steps: int | None = None,
        every_minutes: float | None = None,
        show: int = 2,
    ) -> None:
        super().__init__(every_n_steps, every_minutes)
        self.sampler, self.show = sampler, show

    def look(self, trainer: Any, model: Any) -> None:
        texts = self.sampler(model).texts
        for text in texts[: self.show]:
            get_console().print(f"[dim]step {trainer.global_step}:[/dim] {escape(' '.join(text.split()))}")
        report_table(trainer, "samples", ("text",), [(text,) for text in texts])
