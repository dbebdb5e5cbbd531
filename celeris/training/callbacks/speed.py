"""Tokens per second and the share of the hardware's arithmetic they use."""

import time
from typing import Any

import lightning as L
import torch

from celeris.training.reporting import report_values

# Dense bf16 FLOP/s of one device, from the vendor's data sheets; longer names first.
PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "GH200": 989e12, "B200": 2250e12, "A100": 312e12, "L40S": 362e12}


def peak_flops(device: torch.device) -> float | None:
    """Of a known GPU; None otherwise."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


class Speed(L.Callback):
    """Logs speed/tokens_per_second, speed/step_seconds and, on known hardware, speed/mfu every `every_n_steps` steps.

    Tokens are canvas positions. Time is that of training steps alone: validation, samples and checkpoints do not
    count. MFU takes 6·parameters FLOPs per position of either stream (PaLM 2204.02311, appendix B, without the
    attention term), an estimate from below: self-conditioning passes are extra work that is not counted.

    Args:
        every_n_steps: optimizer steps per report.
        peak: FLOP/s of one device; looked up when None.
    """

    def __init__(self, every_n_steps: int = 50, peak: float | None = None) -> None:
        self.every_n_steps, self.peak = every_n_steps, peak
        self.tokens_per_second = 0.0
        self._reset()

    def _reset(self) -> None:
        self._tokens = self._positions = self._steps = 0
        self._seconds = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._reset()
        if self.peak is None:
            self.peak = peak_flops(pl_module.device)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        # The guard has read the device at the end of each step, so host time is device time there.
        self._seconds += time.perf_counter() - self._began
        self._tokens += batch.canvas.numel() * trainer.world_size
        self._positions += (batch.canvas.numel() + batch.context.numel()) * trainer.world_size
        if not pl_module.between_steps:
            return
        self._steps += 1
        self.tokens_per_second = self._tokens / self._seconds
        if trainer.global_step % self.every_n_steps == 0:
            values = {
                "speed/tokens_per_second": self.tokens_per_second,
                "speed/step_seconds": self._seconds / self._steps,
            }
            if self.peak is not None:
                done = 6 * pl_module.model.num_parameters * self._positions / self._seconds
                values["speed/mfu"] = done / (self.peak * trainer.world_size)
            report_values(trainer, values)
            self._reset()
