"""The text of a run: built from the configuration, or from what an export remembers of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from celeris.config.resolvers import ROOT
from celeris.data.text_data import TextData
from celeris.tasks.ranks import is_first_rank


@dataclass(frozen=True)
class OwnTokenizer:
    """Builder that gives back the tokenizer of a checkpoint."""

    tokenizer: Any
    trained: ClassVar[bool] = False

    def __call__(self, texts: Any) -> Any:
        return self.tokenizer

    def __repr__(self) -> str:
        return "the checkpoint's tokenizer"


def build_data(node: DictConfig, tokenizer: Any = None) -> TextData:
    """The text that the `data` node describes, packed; with `tokenizer` where one is given instead of its own."""
    return prepared(unpacked(node, tokenizer))


def unpacked(node: DictConfig, tokenizer: Any = None) -> TextData:
    """The text that the `data` node describes, of which nothing has been read yet."""
    data = instantiate(node, _convert_="all")
    if tokenizer is not None:
        data.tokenizer_builder = OwnTokenizer(tokenizer)
    return data


def prepared(data: TextData) -> TextData:
    """`data` with its cache made: by whichever rank comes first, while the others wait (`celeris.data.cache`)."""
    if is_first_rank():
        return data.prepare()
    assert data.packed
    return data


def plain_spec(node: DictConfig) -> dict[str, Any]:
    """The `data` node as an export keeps it: resolved, and without the cache, which is this machine's affair."""
    spec = OmegaConf.to_container(node, resolve=True)
    assert isinstance(spec, dict)
    return {str(key): value for key, value in spec.items() if key != "cache_dir"}


def make_paths_absolute(node: DictConfig) -> None:
    """Turn `source.path` into absolute paths: of the working directory, else of the folder of the root scripts.

    What is in neither place (a data set's name on the hub, a mistyped file) stays as it is.
    """
    path = OmegaConf.select(node, "source.path")
    if isinstance(path, str):
        node.source.path = _absolute(path)
    elif path is not None:
        node.source.path = [_absolute(str(item)) for item in path]


def unigram_entropy(counts: np.ndarray) -> float:
    """Nats per token of the distribution with these `counts` (V,)."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _absolute(path: str) -> str:
    for base in (Path.cwd(), ROOT):
        candidate = base / Path(path).expanduser()
        if candidate.exists():
            return str(candidate)
    return path
