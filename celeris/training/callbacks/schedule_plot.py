"""The noise schedule as it stands: a picture and a few numbers."""

from pathlib import Path
from typing import Any

import torch

from celeris.training.callbacks.periodic import Periodic
from celeris.training.reporting import report_image, report_values


class SchedulePlot(Periodic):
    """Draws gamma(t) and the share of time spent per unit of gamma, and logs the deciles.

    Args:
        folder: of the picture (schedule.png, overwritten; a logger that takes pictures keeps the history).
        every_n_steps, every_minutes: see `Periodic`.
    """

    def __init__(
        self, folder: str | Path, every_n_steps: int | None = None, every_minutes: float | None = None
    ) -> None:
        super().__init__(every_n_steps, every_minutes)
        self.folder = Path(folder)

    def look(self, trainer: Any, model: Any) -> None:
        schedule = model.schedule
        t = torch.linspace(0, 1, 201, dtype=torch.float64, device=model.device)
        gamma, slope = schedule.gamma(t).cpu(), schedule.slope(t).cpu()
        report_values(trainer, {f"schedule/gamma_at_{k / 10:.1f}": float(gamma[20 * k]) for k in range(1, 10)})
        file = self.folder / "schedule.png"
        _draw(file, t.cpu(), gamma, 1 / slope, trainer.global_step)
        report_image(trainer, "schedule", file)


def _draw(file: Path, t: torch.Tensor, gamma: torch.Tensor, density: torch.Tensor, step: int) -> None:
    from matplotlib.figure import Figure  # without pyplot: no global state, no display

    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(t, gamma)
    left.set(xlabel="t", ylabel="gamma", title=f"schedule at step {step}")
    right.plot(gamma, density)
    right.set(xlabel="gamma", ylabel="dt/dgamma", title="where training time goes")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
