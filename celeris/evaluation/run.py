"""Evaluate a model: run the metrics that were asked for and put what they found into one report."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from celeris.errors import CelerisError
from celeris.evaluation.machine import describe_machine
from celeris.evaluation.record import Metric, Section, Subject
from celeris.evaluation.report import Report
from celeris.evaluation.store import Store


def check_names(wanted: Sequence[str], available: Iterable[str]) -> list[str]:
    """The metrics asked for, each once, in order. Cheap: call it before a model is loaded.

    Raises:
        CelerisError: none, or one that does not exist; the sentence names the nearest that does.
    """
    available = list(available)
    for name in wanted:
        if name not in available:
            near = difflib.get_close_matches(name, available, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise CelerisError(f"There is no metric {name!r}; {hint}The metrics are {', '.join(available)}.")
    if not wanted:
        raise CelerisError(f"No metric was asked for; set metrics=[…] to some of {', '.join(available)}.")
    return list(dict.fromkeys(wanted))


def evaluate(
    model: Any,
    data: Any,
    metrics: Mapping[str, Metric],
    *,
    seed: int = 0,
    checkpoint: str | None = None,
    output_dir: str | Path | None = None,
    allow_other_data: bool = False,
    progress: bool = False,
    store: Store | None = None,
) -> Report:
    """Measure `model` on the held-out part of `data`.

    Args:
        model: a LanguageModel with its tokenizer; put into evaluation mode.
        data: a TextData made with the same tokenizer.
        metrics: name -> metric, run in this order.
        seed: every random stream derives from it; the same seed gives the same figures.
        checkpoint: where the weights came from, for the report.
        output_dir: write the report's files there; None: write none.
        allow_other_data: measure although the text, packing or EOS policy differs from what the model was trained on.
        progress: one line a step of the evaluation.
        store: keeps samples and scores; None: nothing is kept.

    Raises:
        CelerisError: no tokenizer, another tokenizer, or other data without leave.
    """
    if model.tokenizer is None:
        raise CelerisError("The model has no tokenizer, so no text can be measured; load an export that has one.")
    if data.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise CelerisError("The data was made with another tokenizer than the model; use that of its checkpoint.")
    warnings = list(data.differences(model.info.get("data") or {}))
    if warnings and not allow_other_data:
        raise CelerisError(
            f"The data is not what the model was trained on: {' '.join(warnings)} Set allow_other_data=true to go on."
        )
    model.eval()
    subject = Subject(model, data, model.tokenizer, seed, progress, store or Store())
    sections: dict[str, Section] = {}
    for name, metric in metrics.items():
        if progress:
            print(f"evaluating: {name}", flush=True)
        sections[name] = metric(subject)
    source = {"checkpoint": checkpoint} if checkpoint else {}
    report = Report({**source, **subject.provenance()}, data.describe(), describe_machine(), sections, warnings)
    report.reused = list(subject.store.found)
    if output_dir is not None:
        report.save(output_dir)
    return report
