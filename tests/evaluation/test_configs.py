"""The shipped configuration of each metric is what its class takes."""

import inspect
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from celeris.evaluation.heldout import Likelihood
from celeris.evaluation.prompted import Prompted
from celeris.evaluation.quality import Quality
from celeris.evaluation.run import check_names
from celeris.evaluation.speed import Speed

CONFIGS = Path(__file__).parents[2] / "configs"
CLASSES = {"likelihood": Likelihood, "quality": Quality, "prompted": Prompted, "speed": Speed}


@pytest.fixture
def config(tmp_path: Path):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(overrides=["+evaluation=default", f"+paths.cache_dir={tmp_path}"]).evaluation


def test_metrics_instantiate_and_nothing_is_loaded(config, tmp_path: Path):
    metrics = instantiate(config, _convert_="all")
    assert check_names(list(CLASSES), metrics) == list(CLASSES)
    assert {name: type(metric) for name, metric in metrics.items()} == CLASSES
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", CLASSES)
def test_files_hold_the_defaults_of_the_class(config, name: str):
    """A yaml cannot drift away from the documented defaults."""
    for key, parameter in inspect.signature(CLASSES[name]).parameters.items():
        if key not in ("scorer", "solver"):
            default = parameter.default
            assert config[name][key] == (list(default) if isinstance(default, tuple) else default), key
