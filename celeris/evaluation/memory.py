"""Memory that a call needs at its peak."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

DEFINITION = (
    "peak memory of a call above what was held before it: torch's allocations on CUDA, the resident set of the process "
    "on a CPU under Linux"
)
PROCESS = Path("/proc/self")


class Memory(NamedTuple):
    """Bytes at the peak of a call, `before` it and in between (`peak` − `before`); None with the `reason`."""

    peak: int | None
    before: int | None
    reason: str | None = None

    @property
    def extra(self) -> int | None:
        return None if self.peak is None or self.before is None else max(self.peak - self.before, 0)


def peak_memory(call: Callable[[], Any], device: torch.device, process: Path = PROCESS) -> Memory:
    """Make one call and say what it needed.

    Args:
        process: folder with the `clear_refs` and `status` of this process.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return Memory(torch.cuda.max_memory_allocated(device), before)
    if device.type != "cpu":
        call()
        return Memory(None, None, f"torch keeps no peak of memory on {device.type}")
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)  # else the call is served from pages that an earlier one left resident
    try:
        (process / "clear_refs").write_text("5")  # the high-water mark starts anew: man 5 proc
        before = _resident(process, "VmRSS")
    except (OSError, KeyError) as error:
        call()
        return Memory(None, None, f"this system does not say how much memory a process held at most ({error})")
    call()
    return Memory(_resident(process, "VmHWM"), before)


def _resident(process: Path, name: str) -> int:
    """Bytes of a line "VmRSS:  1234 kB" of the process's status."""
    fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
    return int(fields[name].split()[0]) * 1024
