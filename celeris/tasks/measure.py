"""What the tasks of evaluate.py share: metrics built, a checkpoint measured on its text, a report sent to loggers."""

from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig

from celeris.build import build
from celeris.data.text_data import TextData
from celeris.errors import CelerisError
from celeris.evaluation import run
from celeris.evaluation.record import Metric
from celeris.evaluation.report import Report
from celeris.evaluation.store import Store
from celeris.language_model import LanguageModel
from celeris.tasks.exports import choose_device, load_model
from celeris.tasks.text import OwnTokenizer, make_paths_absolute, prepared


def chosen_metrics(config: DictConfig) -> dict[str, Metric]:
    """The metrics that `metrics=` names, built."""
    wanted = [config.metrics] if isinstance(config.metrics, str) else list(config.metrics or [])
    names = run.check_names(wanted, [str(name) for name, node in config.evaluation.items() if node is not None])
    return {name: instantiate(config.evaluation[name], _convert_="all") for name in names}


def measure(config: DictConfig, folder: Path, metrics: dict[str, Metric]) -> tuple[Report, LanguageModel]:
    """Measure the export in `folder`; samples and scores are kept in its run for the next time."""
    home = folder.parent if folder.name == "export" else folder
    config.paths.run_dir = str(home)
    output = Path(config.output).expanduser().absolute() if config.output else home / "evaluation"
    model = load_model(folder, choose_device(config.device))
    report = run.evaluate(
        model,
        trained_data(config, model) if config.get("data") is None else other_data(config, model),
        metrics,
        seed=config.seed,
        checkpoint=str(folder),
        output_dir=output,
        allow_other_data=config.allow_other_data,
        progress=True,
        store=Store(home / "evaluation" / "kept", config.fresh),
    )
    return report, model


def loggers(config: DictConfig) -> list[Any]:
    """Built after `config.paths.run_dir` is known."""
    return [instantiate(node, _convert_="all") for node in config.logger.values() if node is not None]


def trained_data(config: DictConfig, model: LanguageModel) -> TextData:
    """The text the export says it was trained on.

    Raises:
        CelerisError: it does not say, or its text is not here.
    """
    spec = model.info.get("data_spec")
    if not isinstance(spec, dict):
        raise CelerisError("The checkpoint does not say what text it was trained on; name one with data=.")
    rest = {key: value for key, value in spec.items() if key != "tokenizer_builder"}
    data = build(rest, tokenizer_builder=OwnTokenizer(model.tokenizer), cache_dir=config.paths.cache_dir)
    assert isinstance(data, TextData)
    return prepared(data)


def other_data(config: DictConfig, model: LanguageModel) -> TextData:
    """The text of `data=`, with the checkpoint's tokenizer, and its row length and layout unless they are given."""
    spec = model.info.get("data_spec") or {}
    if config.length is None:
        config.length = spec.get("packing", {}).get("length", model.max_length)
    make_paths_absolute(config.data)
    make = instantiate(config.data, _partial_=True, _convert_="all")
    layout = {} if config.layout is not None else {"layout": build(spec.get("layout"))}
    return prepared(make(tokenizer_builder=OwnTokenizer(model.tokenizer), **layout))


def send(report: Report, loggers: list[Any], model: LanguageModel) -> None:
    """The main figures, every table, the samples and the plots to every logger."""
    step = model.info.get("step", 0)
    for logger in loggers:
        logger.log_metrics({f"evaluation/{name}": value for name, value in report.scalars().items()}, step)
        rows = [(sample.setting, sample.text) for sample in report.samples]
        if rows:
            logger.log_table("evaluation/samples", ("setting", "text"), rows, step)
        for name, section in report.sections.items():
            for number, table in enumerate(section.tables, 1):
                logger.log_table(f"evaluation/{name}_table_{number}", table.columns, table.rows, step)
        for name, file in report.plots().items():
            logger.log_image(f"evaluation/{name}", file, step)
        logger.finalize("success")
