"""`python -m celeris.tasks.ablations runs/ablation docs/ablations.md`: the ablation table, from run directories."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from celeris.config.compose import CONFIGS
from celeris.errors import CelerisError
from celeris.evaluation.ablation_page import ablation_page, describe_variants, join_text
from celeris.evaluation.ablations import AblationRun, read_run


def find_runs(folder: Path) -> list[AblationRun]:
    """Every run in `folder`/<variant>/<run id>/, told apart by its config.yaml.

    Raises:
        CelerisError: there is none.
    """
    found = []
    for file in sorted(folder.glob("*/*/config.yaml")):
        config = OmegaConf.to_container(OmegaConf.load(file))
        assert isinstance(config, dict)
        plain = {str(key): value for key, value in config.items()}
        if run := read_run(file.parent, file.parent.parent.name, plain):
            found.append(run)
    if not found:
        raise CelerisError(
            f"There are no runs in {folder}; make some with `python train.py -m experiment=ablation/base seed=1,2,3`."
        )
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Write the page; with --missing only print the folders of finished runs that have no evaluation yet."""
    parser = argparse.ArgumentParser(prog="python -m celeris.tasks.ablations", description=__doc__)
    parser.add_argument("runs", type=Path, help="folder with <variant>/<run id>/")
    parser.add_argument("page", type=Path, nargs="?", help="Markdown file to write; printed when left out")
    parser.add_argument("--missing", action="store_true", help="print the runs that are to be evaluated, one a line")
    given = parser.parse_args(words)
    try:
        runs = find_runs(given.runs.absolute())
    except CelerisError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.missing:
        for run in runs:
            if not run.bits and (run.planned is None or run.steps >= run.planned) and (run.folder / "export").is_dir():
                print(os.path.relpath(run.folder))
        return 0
    page = ablation_page(runs, describe_variants(Path(CONFIGS) / "experiment" / "ablation"))
    if given.page is None:
        print(page)
    else:
        old = given.page.read_text(encoding="utf-8") if given.page.exists() else ""
        part = given.page.with_name(f".{given.page.name}.part")
        part.write_text(join_text(old, page), encoding="utf-8")
        os.replace(part, given.page)
        print(f"{len(runs)} runs -> {given.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
