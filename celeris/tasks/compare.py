"""`evaluate.py compare=[…]`: checkpoints and finished reports side by side, on one page."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from glob import glob
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from celeris.config.resolvers import ROOT
from celeris.errors import CelerisError
from celeris.evaluation.ablation_page import short_path
from celeris.evaluation.ablations import flat_settings
from celeris.evaluation.comparison.groups import Entry
from celeris.evaluation.comparison.join import check_comparable, join
from celeris.evaluation.comparison.page import tables
from celeris.evaluation.comparison.words import findings, headline
from celeris.evaluation.comparison.write import write_comparison
from celeris.evaluation.record import Metric, Subject
from celeris.evaluation.slug import slug
from celeris.evaluation.store import Store
from celeris.language_model import LanguageModel
from celeris.tasks.environment import describe_environment
from celeris.tasks.exports import existing_path
from celeris.tasks.measure import chosen_metrics, loggers, measure, other_data, trained_data

KEPT = ("celeris", "python", "packages", "cpu", "cores", "threads", "devices", "cuda")
"""Of environment.json: what a reader of the page needs."""


def compare_checkpoints(config: DictConfig) -> None:
    """Measure what is not measured yet, time one checkpoint of each configuration in one interleaved run, and write
    comparison.md, comparison.html, comparison.json and the pictures."""
    metrics = chosen_metrics(config)
    timer = metrics.pop("speed", None)
    output = Path(config.output or Path(config.paths.runs_dir) / "compare" / "comparison").expanduser().absolute()
    entries: list[Entry] = []
    subjects: dict[str, Subject] = {}
    for path in find_sources(config.compare):
        if is_export(path):
            entry, subject = measured(config, path, metrics)
            subjects.setdefault(entry.configuration, subject)
        else:
            entry = finished(path)
        entries.append(entry)
        if len(entries) > 1:  # refuse before the next hour is spent
            check_comparable(entries, config.allow_other_scoring)
    speed = None if timer is None or not subjects else timed(timer, list(subjects.values()))
    record = join(entries, made_by(), speed=speed, allow_other_scoring=config.allow_other_scoring)
    record["findings"] = findings(record)
    pictures = write_comparison(record, output)
    send_comparison(config, record, output, pictures)
    for sentence in [*record["warnings"], *record["findings"]["sentences"]]:
        print(f"* {sentence}")
    print(f"comparison: {output / 'comparison.md'} and {output / 'comparison.html'}")


def find_sources(wanted: Any) -> list[Path]:
    """Runs, exports, report.json files and folders that hold one; a pattern means all that it matches, in order.

    Raises:
        CelerisError: nothing there, or what is there is none of these.
    """
    found: list[Path] = []
    for text in [wanted] if isinstance(wanted, str) else [str(item) for item in wanted]:
        many = sorted(path for base in (Path.cwd(), ROOT) for path in glob(str(base / Path(text).expanduser())))
        for path in [Path(item) for item in many] or [existing_path(text, "compare")]:
            if not is_export(path) and report_file(path) is None:
                raise CelerisError(
                    f"{path} is neither a run with an export nor a report; give runs, or folders with "
                    "evaluation/report.json."
                )
            if path.absolute() not in found:
                found.append(path.absolute())
    return found


def is_export(path: Path) -> bool:
    """Whether there are weights to measure: in `path`, or in its export/."""
    return any((folder / "model.safetensors").is_file() for folder in (path, path / "export"))


def report_file(path: Path) -> Path | None:
    """The report.json that `path` is or holds."""
    places = (path, path / "report.json", path / "evaluation" / "report.json")
    return next((place for place in places if place.suffix == ".json" and place.is_file()), None)


def measured(config: DictConfig, path: Path, metrics: dict[str, Metric]) -> tuple[Entry, Subject]:
    """The report of a checkpoint; what its run has kept is not measured again. It is written into the run's
    evaluation/compared, beside a fuller report that may be there."""
    folder = path / "export" if (path / "export").is_dir() else path
    home = folder.parent if folder.name == "export" else folder
    one = config.copy()
    one.output = str(home / "evaluation" / "compared")
    report, model = measure(one, folder, metrics)
    if report.reused:
        print(f"{short_path(home)}: {len(report.reused)} results were kept from an earlier evaluation")
    data = trained_data(one, model) if one.get("data") is None else other_data(one, model)
    assert model.tokenizer is not None
    subject = Subject(
        model, data, model.tokenizer, config.seed, True, Store(home / "evaluation" / "kept", config.fresh)
    )
    return Entry(short_path(home), report.to_dict(), training_of(home, model)), subject


def finished(path: Path) -> Entry:
    """A report that was written before.

    Raises:
        CelerisError: it cannot be read, or is about no checkpoint.
    """
    file = report_file(path)
    assert file is not None
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        about = report["checkpoint"]["weight_hash"], report["metrics"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CelerisError(f"{file} is no report of a checkpoint ({error!r}); make it with evaluate.py.") from error
    assert about
    usual = file.parents[1] if file.parent.name == "evaluation" else file.parent
    home = next((folder for folder in list(file.parents)[:3] if (folder / "config.yaml").is_file()), usual)
    return Entry(short_path(home), report, training_of(home))


def training_of(home: Path, model: LanguageModel | None = None) -> dict[str, Any]:
    """What a run says about its training, as far as it says it."""
    found: dict[str, Any] = {}
    record = _json(home / "environment.json")
    found |= {key: record[key] for key in ("command", *KEPT) if record.get(key)}
    if "command" in found:
        found["command"] = shown(found["command"])
    if commit := (record.get("git") or {}).get("commit"):
        found["commit"] = commit
    export = _json(home / "export" / "config.json").get("info") or (model.info if model is not None else {})
    if "experiment" in export:
        found["experiment"] = export["experiment"]
    if (home / "config.yaml").is_file():
        config = OmegaConf.to_container(OmegaConf.load(home / "config.yaml"))
        assert isinstance(config, dict)
        found["settings"] = dict(flat_settings(config))
        sizes = (export.get("step"), config.get("global_batch_size"), config.get("length"))
        if all(isinstance(size, int) for size in sizes):
            found["tokens"] = math.prod(sizes)
    return found


def timed(timer: Any, subjects: list[Subject]) -> Mapping[str, Any]:
    """The record of one interleaved run over `subjects`.

    Raises:
        CelerisError: what evaluation.speed names cannot do that.
    """
    if not hasattr(timer, "together"):
        raise CelerisError(f"evaluation.speed is a {type(timer).__name__}, which cannot time several models together.")
    record: Mapping[str, Any] = timer.together(subjects).record
    return record


def made_by() -> dict[str, Any]:
    """Date, command, state of the code and machine of this comparison."""
    environment = describe_environment(ROOT)
    return {
        "date": datetime.now().astimezone().isoformat(timespec="minutes"),
        "command": shown(environment["command"]),
        "git": environment["git"],
        "environment": {key: environment[key] for key in KEPT},
    }


def shown(command: Sequence[str]) -> list[str]:
    """The words of a command with paths under the project's folder relative to it, where the command is to be typed."""
    root = re.escape(str(ROOT))
    return [re.sub(rf"(?<![\w./-]){root}(/|(?![\w./-]))", lambda m: "" if m[1] else ".", word) for word in command]


def send_comparison(config: DictConfig, record: Mapping[str, Any], folder: Path, pictures: Mapping[str, str]) -> None:
    """Every table, the pictures and the headline likelihoods to every logger."""
    config.paths.run_dir = str(folder)
    likelihoods = {}
    for system in record["systems"]:
        result = headline(system)
        if result is not None:
            value = result["bits_per_character"]["mean"]
            likelihoods[f"comparison/{slug(system['name'])}/bits_per_character"] = value
    for logger in loggers(config):
        if likelihoods:
            logger.log_metrics(likelihoods, 0)
        for some in tables(record).values():
            for table in some:
                logger.log_table(f"comparison/{slug(table.title)}", table.columns, table.rows, 0)
        for name in pictures:
            logger.log_image(f"comparison/{name.removesuffix('.png')}", folder / name, 0)
        logger.finalize("success")


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
