"""`python -m celeris.tasks.scaling docs/scaling.md`: the tables of the page, and its picture beside it."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.utils import instantiate

from celeris.config.compose import compose_config
from celeris.errors import CelerisError
from celeris.evaluation.ablation_page import join_text
from celeris.scaling.page import MARK, Subject, draw, page, read_measured
from celeris.tasks.estimate import is_sharded, plan_of, trace_run

TITLE = "# Scaling\n"


def subject_of(experiment: str, hardware_name: str) -> Subject:
    """The experiment as it is configured, on as many devices as it asks for."""
    config = compose_config("train", [f"experiment={experiment}", f"hardware={hardware_name}"])
    if not is_sharded(config):  # a single process says nothing about devices
        config = compose_config("train", [f"experiment={experiment}", f"hardware={hardware_name}", "trainer=ddp"])
    plan = plan_of(config, instantiate(config.hardware))
    return Subject(
        experiment, plan, trace_run(config, plan.micro_batch), config.model.denoiser.width, config.model.denoiser.depth
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m celeris.tasks.scaling", description=__doc__)
    parser.add_argument("page", type=Path, help="Markdown file; the text above its mark is kept")
    parser.add_argument("--hardware", default="h100", help="a file of configs/hardware")
    parser.add_argument("--experiments", nargs="+", default=["base", "large", "xl"])
    given = parser.parse_args(words)
    try:
        hardware = instantiate(compose_config("train", [f"hardware={given.hardware}"]).hardware)
        subjects = [subject_of(name, given.hardware) for name in given.experiments]
        text = page(subjects, hardware, read_measured(given.page.with_suffix(".json")))
    except CelerisError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    old = given.page.read_text(encoding="utf-8") if given.page.exists() else ""
    part = given.page.with_name(f".{given.page.name}.part")
    part.write_text(join_text(old, text, MARK, TITLE), encoding="utf-8")
    os.replace(part, given.page)
    save_picture(subjects, hardware, given.page.with_suffix(".png"))
    print(f"{len(subjects)} experiments -> {given.page}")
    return 0


def save_picture(subjects: Sequence[Subject], hardware: object, file: Path) -> None:
    from matplotlib.figure import Figure  # seconds to import

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    draw(subjects, hardware, figure.subplots())  # type: ignore[arg-type]
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
