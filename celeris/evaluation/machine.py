"""What figures of speed depend on beside the model: processor, threads, load, versions."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from celeris import __version__


def describe_machine() -> dict[str, Any]:
    """Plain values: versions and hardware of this process, and how busy the machine is at this moment."""
    cuda = torch.cuda.is_available()
    return {
        "celeris": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": load_average(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
        "cuda": torch.version.cuda if cuda else None,
    }


def cpu_name() -> str:
    """The processor's model as the system calls it, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def load_average() -> list[float] | None:
    """Processes that wanted to run, means over 1, 5 and 15 minutes; None where the system does not say."""
    try:
        return [round(load, 2) for load in os.getloadavg()]
    except (AttributeError, OSError):
        return None


def package_version(package: str) -> str | None:
    """Of an installed package; None when it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
