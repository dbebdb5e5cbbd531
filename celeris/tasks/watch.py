"""`python evaluate.py watch=runs/history.jsonl`: write texts anew and compare them with the stored figures.

Exit status: 0 nothing became worse, 3 something did, 2 there is nothing to compare with.
"""

from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from celeris.errors import CelerisError
from celeris.evaluation import history, run
from celeris.evaluation.history_figures import choices_of
from celeris.evaluation.slug import slug
from celeris.tasks.exports import choose_device, find_export, load_model
from celeris.tasks.history import line_of, show_changes
from celeris.tasks.measure import other_data, trained_data

REGRESSION = 3


def watch_checkpoint(config: DictConfig) -> None:
    """Measure the text quality of a checkpoint as the newest line of its system was measured, and compare the two.

    Step counts, temperatures, length and number of texts are those of the line; scorer and solvers are those of
    `evaluation.quality`. Nothing that an earlier evaluation kept is used.

    Raises:
        CelerisError: the file has no figures of such texts, or none of the new ones can be compared with them.
        SystemExit: with status 3 when a figure became worse by more than its noise.
    """
    path = Path(config.watch).expanduser().absolute()
    if not path.is_file():
        raise CelerisError(f"There is no history at {path}; make one with python evaluate.py history={config.watch}.")
    lines, broken = history.read(path)
    folder = find_export(config.checkpoint, Path(config.paths.runs_dir))
    config.paths.run_dir = str(folder.parent if folder.name == "export" else folder)
    model = load_model(folder, choose_device(config.device))
    stored = next((line for line in reversed(lines) if line["system"] == model.system and choices_of(line)), None)
    if stored is None:
        raise CelerisError(
            f"{path} has no text quality of a {model.system} model among its {len(lines)} lines; add one with "
            f"python evaluate.py history={config.watch} metrics=[quality]." + "".join(f" {words}" for words in broken)
        )
    print(f"watch: as {history.named(stored)} was measured, with seed {config.seed} (stored: {stored['seed']})")
    report = run.evaluate(
        model,
        trained_data(config, model) if config.get("data") is None else other_data(config, model),
        {"quality": instantiate(_as_stored(config.evaluation.quality, stored), _convert_="all")},
        seed=config.seed,
        checkpoint=str(folder),
        allow_other_data=config.allow_other_data,
        progress=True,
    )
    changes = history.compare(line_of(report), [stored])
    worse = history.regressions(changes)
    now = {(change.group, change.name) for change in changes}
    warnings = [
        f"{group}: {name} is in the history and was not measured now."
        for group, found in stored["groups"].items()
        for name in found["figures"]
        if group.startswith(("quality ", "scored ")) and (group, name) not in now
    ]
    show_changes(
        f"Watch {path.name}: {history.named(stored)}", changes, [*broken, *report.unavailable, *warnings, *worse]
    )
    judged = [change for change in changes if change.z is not None]
    if not judged:
        raise CelerisError(f"Nothing of {history.named(stored)} in {path} can be compared with what was measured now.")
    print(f"watch: {len(worse)} of {len(judged)} figures became worse by more than their noise", flush=True)
    if worse:
        raise SystemExit(REGRESSION)


def _as_stored(quality: DictConfig, line: history.Line) -> DictConfig:
    """The quality metric of the configuration, to measure what `line` has figures of and nothing else."""
    node, choices = quality.copy(), choices_of(line)
    names = choices.pop("solvers")
    for key, value in choices.items():
        if value or key == "autoregressive_temperatures":  # none of these leaves that decoder of celeris out
            node[key] = value
    if node.get("solvers"):
        kept = {name: solver for name, solver in node.solvers.items() if not names or slug(name) in names}
        node.solvers = kept or node.solvers
    return node
