"""What a run ran on: versions, state of the code, machine."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from celeris.evaluation.machine import describe_machine, package_version

PACKAGES = (
    "torch", "lightning", "hydra-core", "omegaconf", "numpy", "tokenizers", "safetensors", "transformers", "wandb",
    "flash-attn",
)  # fmt: skip


def describe_environment(root: Path) -> dict[str, Any]:
    """Plain values for `environment.json`.

    Args:
        root: folder of the code; its git state is recorded where it is a repository.
    """
    return {
        **describe_machine(),
        "git": git_state(root),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "packages": {name: found for name in PACKAGES if (found := package_version(name))},
        "platform": platform.platform(),
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
