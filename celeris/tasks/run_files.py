"""What a run writes about itself before it trains: the composed configuration and the environment."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from celeris.config.resolvers import ROOT
from celeris.errors import CelerisError
from celeris.tasks.environment import describe_environment


def write_run_files(folder: Path, config: DictConfig) -> None:
    """Write config.yaml and environment.json; a resume keeps the old ones, adds its own, and prints what changed."""
    folder.mkdir(parents=True, exist_ok=True)
    segment = sum(1 for _ in folder.glob("config*.yaml"))
    mark = f"-{segment}" if segment else ""
    plain = OmegaConf.to_container(config, resolve=True)
    if segment:
        first = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
        for line in differences(first, plain):
            print(f"changed since the run was started: {line}")
    OmegaConf.save(OmegaConf.create(plain), folder / f"config{mark}.yaml")
    environment = json.dumps(describe_environment(ROOT), indent=2)
    (folder / f"environment{mark}.json").write_text(environment + "\n", encoding="utf-8")


def check_same_run(folder: Path, config: DictConfig) -> None:
    """Refuse to continue, unasked, the run of another configuration: a second training of the same cluster job.

    Raises:
        CelerisError: names the first value that differs from the run's config.yaml.
    """
    file = folder / "config.yaml"
    if file.exists():
        first = OmegaConf.to_container(OmegaConf.load(file))
        for line in differences(first, OmegaConf.to_container(config, resolve=True)):
            raise CelerisError(
                f"{folder} holds a run of this job with other settings ({line}); give each training of a job its own "
                "run_id=, or continue this one with ckpt=last."
            )


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """`key: old -> new` for every value that differs between two plain configurations."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    elif old != new:
        yield f"{path}: {old} -> {new}"
