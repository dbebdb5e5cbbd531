"""What a run ran on: versions, state of the code, machine."""

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import celeris

PACKAGES = (
    "torch", "lightning", "hydra-core", "omegaconf", "numpy", "tokenizers", "safetensors", "transformers", "wandb",
    "flash-attn",
)  # fmt: skip


def describe_environment(root: Path) -> dict[str, Any]:
    """Plain values for `environment.json`.

    Args:
        root: folder of the code; its git state is recorded where it is a repository.
    """
    cuda = torch.cuda.is_available()
    return {
        "celeris": celeris.__version__,
        "git": git_state(root),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
        "cuda": torch.version.cuda if cuda else None,
    }


def git_state(root: Path) -> dict[str, Any] | None:
    """Commit, branch, and the files that differ from it; None where `root` is no repository or git is missing."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _git(root, "status", "--porcelain") or ""
    return {
        "commit": commit,
        "branch": _git(root, "rev-parse", "--abbrev-ref", "HEAD"),
        "changed": [line.strip() for line in changed.splitlines()],
    }


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
