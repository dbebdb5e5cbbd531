"""The shipped configuration of each metric is what its class takes."""

import inspect
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from celeris.evaluation.exact_match import ExactMatch
from celeris.evaluation.heldout import Likelihood
from celeris.evaluation.infilling import Infilling
from celeris.evaluation.lengths import Lengths
from celeris.evaluation.pairs import Pairs
from celeris.evaluation.prompted import Prompted
from celeris.evaluation.quality import Quality
from celeris.evaluation.run import check_names
from celeris.evaluation.speed import Speed
from celeris.sampling import DDIM
from celeris.sampling.solvers import Euler, FullRenoise

CONFIGS = Path(__file__).parents[2] / "configs"
CLASSES = {"likelihood": Likelihood, "quality": Quality, "prompted": Prompted, "speed": Speed, "pairs": Pairs,
           "exact_match": ExactMatch, "infilling": Infilling, "lengths": Lengths}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(overrides=["+evaluation=default", f"+paths.cache_dir={tmp_path}"]).evaluation


def test_the_solvers_compared_are_all_that_differ():
    """Of the solvers shipped, euler and renoise are the maps of eta 0 and eta 1."""
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose(overrides=["+evaluation=solvers", "+paths.cache_dir=cache"]).evaluation
    assert list(config) == list(CLASSES)
    choices = instantiate(config.quality, _convert_="all").choices
    solvers = list(choices.solvers.values())
    assert list(choices.num_inference_steps) == [4, 8, 16, 32]
    shipped = {instantiate(yaml, eta=0.0) if "eta" in yaml else instantiate(yaml) for yaml in solver_files()}
    assert {type(solver) for solver in solvers} == {type(solver) for solver in shipped} - {Euler, FullRenoise}
    assert [solver.eta for solver in solvers if isinstance(solver, DDIM)] == [0, 0.5, 1]


def solver_files() -> list[DictConfig]:
    loaded = [OmegaConf.load(path) for path in sorted((CONFIGS / "solver").glob("*.yaml"))]
    return [file for file in loaded if isinstance(file, DictConfig)]


def test_metrics_instantiate_and_nothing_is_loaded(config, tmp_path: Path):
    metrics = instantiate(config, _convert_="all")
    assert check_names(list(CLASSES), metrics) == list(CLASSES)
    assert {name: type(metric) for name, metric in metrics.items()} == CLASSES
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", CLASSES)
def test_files_hold_the_defaults_of_the_class(config, name: str):
    """A yaml cannot drift away from the documented defaults."""
    for key, parameter in inspect.signature(CLASSES[name]).parameters.items():
        if key not in ("scorer", "solver", "solvers", "mauve"):
            default = parameter.default
            assert config[name][key] == (list(default) if isinstance(default, tuple) else default), key
