"""Clocks and devices that work ahead of the host."""

import torch


def synchronize(device: torch.device) -> None:
    """Wait for work queued on `device`, so that a clock read next is honest."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
