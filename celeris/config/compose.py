"""Compose a task's configuration without running it: for error messages, tests and notebooks."""

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from celeris.config.resolvers import ROOT, register_resolvers

CONFIGS = str(ROOT / "configs")


def compose_config(task: str, overrides: Sequence[str] = (), with_hydra: bool = False) -> DictConfig:
    """What `python <task>.py <overrides>` would run.

    Args:
        task: train, sample or evaluate.
        overrides: words of the command line.
        with_hydra: keep the `hydra` node.

    Raises:
        HydraException, OmegaConfBaseException: the overrides do not fit the configuration.
    """
    register_resolvers()
    GlobalHydra.instance().clear()
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return compose(task, list(overrides), return_hydra_config=with_hydra)
