"""docs/ablations.md: the rows of the ablation table by study, with the commands that made them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from celeris.evaluation.ablations import AblationRun, Row, Spread, difference, group_rows
from celeris.evaluation.estimates import BOUND, NEXT_TOKEN, TOGETHER
from celeris.evaluation.record import Table
from celeris.evaluation.report import markdown_table

BASE = "base"
TWIN = "objective_autoregressive"
TWINS = {  # of what changes the trunk or the number of steps
    "token_input": "token_input_autoregressive",
    "recipe_token_input": "token_input_autoregressive",
    "recipe_weight": "token_input_autoregressive",
    "recipe_warm_up": "token_input_autoregressive",
    "recipe_warm_up_time": "recipe_autoregressive",
    "recipe_all": "recipe_autoregressive",
    "recipe_no_self_conditioning": "recipe_autoregressive",
}
ROWS = 96
COLUMNS = ["variant", "seeds", "steps", "seconds", "M characters", "bound", "− base", "together", "next token",
           "bound − twin", "together − twin"]  # fmt: skip
MARK = "<!-- make ablations writes all that follows -->"
"""What stands above this line of the page is somebody's text, and kept."""
TITLE = "# Ablations\n"
HEAD = """
Every variant is `experiment=ablation/base` (`configs/experiment/ablation/base.yaml`: `experiment=tiny` as it was before
this table, with fewer steps) with one thing changed. Figures are mean ± standard deviation over seeds, in bits per
character of held-out text.

* seconds: of training; to be compared only within one machine
* bound: the variational bound at the model's own stagger; together: all positions of a block at once
* − base: the bound minus the base's, ± the pooled standard deviation of the two
* next token: exact, of the next-token head of the same weights
* bound − twin: distance to the autoregressive twin, the same trunk, data and steps on next-token prediction alone;
  together − twin: the same for all positions at once
"""


def describe_variants(folder: Path) -> dict[str, tuple[str, str]]:
    """Variant → (study, what is changed), from the line `# Study: what is changed` of each yaml in `folder`."""
    found = {}
    for file in sorted(folder.glob("*.yaml")):
        line = file.read_text(encoding="utf-8").splitlines()[1]
        study, _, text = line.removeprefix("#").strip().partition(": ")
        found[file.stem] = (study, text)
    return found


def ablation_page(runs: Sequence[AblationRun], variants: Mapping[str, tuple[str, str]]) -> str:
    """The page below `MARK`, as Markdown.

    Args:
        runs: all that were found; those stopped early are named and left out of the figures.
        variants: of `describe_variants`.
    """
    done = [run for run in runs if run.planned is None or run.steps >= run.planned]
    rows = group_rows(done)
    base = next((row for row in rows if row.variant == BASE), None)
    twins = {row.variant: row for row in rows if row.variant == TWIN or row.variant in TWINS.values()}
    lines = [MARK, HEAD]
    if len(counts := {run.rows for run in done if run.rows}) > 1:
        lines += [f"**Not comparable:** some runs were measured on other rows than others ({sorted(counts)}).", ""]
    studies: dict[str, list[str]] = {}
    for name, (study, _) in variants.items():
        if name != BASE or {row.variant for row in rows} == {BASE}:
            studies.setdefault(study, []).append(name)
    for name in sorted({row.variant for row in rows} - set(variants)):
        studies.setdefault("Others", []).append(name)
    for study, names in studies.items():
        chosen = [row for row in rows if row.variant in names]
        if chosen:
            shown = [row for row in rows if row.variant == BASE and row not in chosen] + chosen
            table = [_cells(row, base, twins.get(TWINS.get(row.variant, TWIN))) for row in shown]
            lines += [f"## {study}", "", *markdown_table(Table(study, COLUMNS, table))[2:], ""]
            lines += [f"* `{name}`: {variants[name][1]}" for name in names if name in variants] + [""]
    lines += _sampling(rows)
    lines += _missing(done, runs)
    lines += ["## Commands", "", "```bash"]
    lines += [f"python train.py -m experiment=ablation/{name} seed=1,2,3" for name in variants]
    lines += ["make ablations", "```", ""]
    return "\n".join(lines)


def _cells(row: Row, base: Row | None, twin: Row | None) -> list[str]:
    sizes = [run.tokens * run.characters_per_token / 1e6 for run in row.evaluated if run.characters_per_token]
    bound = row.bits(BOUND)
    reached = twin.bits(NEXT_TOKEN) if twin is not None else None
    seconds = [run.seconds for run in row.runs]
    steps = sorted({run.steps for run in row.runs})
    return [
        f"`{row.variant}`" + (f", {row.changed}" if row.changed else ""),
        str(len(row.runs)) if len(row.evaluated) == len(row.runs) else f"{len(row.evaluated)} of {len(row.runs)}",
        f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} … {steps[-1]:,}",
        f"{sum(seconds) / len(seconds):,.0f}",
        f"{sum(sizes) / len(sizes):.2f}" if sizes else "–",
        _text(bound),
        "–" if row is base else _signed(difference(bound, base.bits(BOUND) if base else None)),
        _text(row.bits(TOGETHER)),
        _text(row.bits(NEXT_TOKEN)),
        _signed(difference(bound, reached)),
        _signed(difference(row.bits(TOGETHER), reached)),
    ]


def _sampling(rows: Sequence[Row]) -> list[str]:
    columns = ["variant", "sampled with", "generative perplexity", "scorer bits/char", "known words", "entropy, nats",
               "share of real text's"]  # fmt: skip
    cells = [
        [
            f"`{row.variant}`" + (f", {row.changed}" if row.changed else ""),
            label,
            _text(figures["gen_ppl"], 0),
            _text(figures["scorer_bits_per_character"], 2),
            _text(figures["known_word_share"]),
            _text(figures["entropy"], 2),
            _text(figures["entropy_ratio"], 2),
        ]
        for row in rows
        for label, figures in row.quality()
    ]
    return ["## Sampling", "", *markdown_table(Table("", columns, cells))[2:], ""] if cells else []


def _missing(done: Sequence[AblationRun], runs: Sequence[AblationRun]) -> list[str]:
    lines = []
    if waiting := [run for run in done if not run.bits]:
        lines += ["## Not evaluated yet", "", "```bash"]
        lines += [f"python evaluate.py {evaluation(run.folder)}" for run in waiting]
        lines += ["```", ""]
    if stopped := [run for run in runs if run not in done]:
        lines += ["## Stopped early, and left out", ""]
        lines += [f"* `{short_path(run.folder)}`: {run.steps:,} of {run.planned:,} steps" for run in stopped] + [""]
    return lines


def join_text(old: str, page: str, mark: str = MARK, title: str = TITLE) -> str:
    """`page` below the text of the file `old`: what stands above `mark`, or all of it where there is no mark."""
    text = old.partition(mark)[0] if old else title + "\n"
    return text.rstrip("\n") + "\n\n" + page


def evaluation(folder: Path) -> str:
    """Words of evaluate.py for the run in `folder`."""
    return (
        f"checkpoint={short_path(folder)} metrics=[likelihood] evaluation.likelihood.rows={ROWS} "
        "evaluation.likelihood.order=1 logger=none"
    )


def short_path(folder: Path) -> str:
    """From `runs` on, so that the page does not depend on where the project lies."""
    parts = folder.parts
    return "/".join(parts[len(parts) - 1 - parts[::-1].index("runs") :]) if "runs" in parts else str(folder)


def _text(value: Spread | None, digits: int = 3) -> str:
    return "–" if value is None else value.text(digits)


def _signed(value: Spread | None) -> str:
    return "–" if value is None else f"{value.mean:+.3f}" + ("" if value.sd is None else f" ± {value.sd:.3f}")
