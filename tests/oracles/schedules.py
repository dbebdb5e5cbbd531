"""Every schedule that ships, as its yaml builds it: a new file is covered without an edit here."""

from functools import cache
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import OmegaConf

from celeris.config.compose import CONFIGS, compose_config
from celeris.noise import Schedule

NAMES = sorted(path.stem for path in Path(CONFIGS, "schedule").glob("*.yaml"))


@cache
def shipped(name: str) -> Schedule:
    """configs/schedule/<name>.yaml, untrained, for embeddings of the oracles' size and 1 nat a token."""
    config = compose_config("train", [f"schedule={name}"])
    OmegaConf.update(config, "embedding.dim", 6, force_add=True)
    config.vocabulary = {"size": 30, "pad_id": 0, "eos_id": 1, "unk_id": 2, "entropy": 1.0}
    return instantiate(config.schedule, _convert_="all")
