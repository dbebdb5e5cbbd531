"""The one way in: compose the configuration, run the task, and end a mistake in one line.

Exit status: 0 done, 2 a mistake of the user (one line `error: …` on stderr), 3 a scheduled check found that a figure
became worse (`evaluate.py watch=…`), 130 interrupted. A defect of the program keeps its traceback; CELERIS_TRACEBACK=1
shows it for mistakes too.
"""

import os
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from celeris.config.compose import CONFIGS, compose_config
from celeris.config.messages import explain, is_mistake
from celeris.config.overrides import check_overrides
from celeris.config.resolvers import ROOT, register_resolvers
from celeris.errors import CelerisError
from celeris.tasks.ranks import in_submitit
from celeris.tasks.run_directory import SWEEP_ID, new_id

# Our hydra/launcher/submitit_local.yaml has the name of the one in the launcher's package, on purpose.
warnings.filterwarnings("ignore", message=r"\n'hydra/launcher/submitit_local' is validated against")
register_resolvers()  # here, so that a launcher's worker, which only imports this module, has them too


def main(task: Callable[[DictConfig], None], words: list[str] | None = None) -> int:
    """Run `task` on the configuration of the same name, composed from the command line.

    Args:
        task: called with the composed configuration; `configs/<its name>.yaml` is where composition starts.
        words: arguments of the command line; those of the process when None.

    Returns:
        The exit status.
    """
    words = sys.argv[1:] if words is None else words
    name = task.__name__
    argv, sys.argv = sys.argv, [str(ROOT / f"{name}.py"), *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that Hydra raises instead of printing a traceback of its own
    overrides: list[str] = []

    def compose_again(others: list[str]) -> DictConfig:
        return compose_config(name, others, with_hydra=True)

    @wraps(task)
    def guarded(config: DictConfig) -> None:
        try:
            task(config)
        except Exception as error:  # before Hydra adds words of its own
            _end(error, overrides, compose_again)

    try:
        arguments = get_args_parser().parse_args(words)
        overrides += arguments.overrides
        check_overrides(overrides)
        if arguments.multirun:
            os.environ[SWEEP_ID] = new_id()
        hydra.main(version_base="1.3", config_path=CONFIGS, config_name=name)(guarded)()
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        print("error: interrupted.", file=sys.stderr)
        return 130
    except Exception as error:
        try:
            _end(error, overrides, compose_again)
        except SystemExit:
            return 2
    finally:
        sys.argv = argv


def _end(error: Exception, overrides: list[str], compose_again: Callable[[list[str]], DictConfig]) -> NoReturn:
    """Print a mistake as one line and exit; raise a defect again."""
    if os.environ.get("CELERIS_TRACEBACK") == "1" or not is_mistake(error):
        raise error
    sentence = " ".join(explain(error, overrides, compose_again).split())
    if in_submitit():  # carries it back to the process that waits for its jobs
        raise CelerisError(sentence)
    print(f"error: {sentence}", file=sys.stderr)
    raise SystemExit(2)
