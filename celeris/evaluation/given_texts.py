"""Quality of texts from anywhere: the figures that need no checkpoint, with real text of the same lengths beside."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celeris.data.sources.base import Source, Split
from celeris.errors import CelerisError
from celeris.evaluation.bench import Bench
from celeris.evaluation.given_texts_tables import ROWS, texts_tables
from celeris.evaluation.quality import Quality
from celeris.evaluation.quality_figures import SAMPLES_FOR_MAUVE, Measured, mauve_flag
from celeris.evaluation.record import Section, Subject
from celeris.evaluation.references import DEFINITIONS as AGAINST
from celeris.evaluation.references import compare_with_references
from celeris.evaluation.samples import Texts
from celeris.evaluation.store import Store
from celeris.evaluation.windows import text_windows

UNIT = "Unicode code points"
NEEDS_REAL_TEXT = (
    "known_word_share", "known_word_share_all", "known_word_share_standard_error", "copied_longest", "copied_mean",
    "mauve", "mauve_sd", "mauve_samples", "entropy_ratio", "real_entropy_same_length",
)  # fmt: skip
NEEDS_A_DECODER = ("calls_per_token", "forwards", "tokens_per_forward", "seconds", "tokens_per_second")


class Characters:
    """Texts of unknown origin have no tokenizer: their tokens are Unicode code points."""

    unk_id = None

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


@dataclass(frozen=True)
class SourceText:
    """A source of text as an evaluation reads it; without a source there is no text."""

    source: Source | None

    def _documents(self, split: Split) -> Iterator[str]:
        return self.source.documents(split) if self.source else iter(())

    def train_texts(self) -> Iterator[str]:
        return self._documents("train")

    def val_texts(self) -> Iterator[str]:
        return self._documents("val")

    def describe(self) -> dict[str, Any]:
        if self.source is None:
            return {"source": "none", "fingerprint": None}
        return {"source": self.source.title, "fingerprint": self.source.fingerprint()}


def measure_texts(
    records: Sequence[Mapping[str, str]],
    name: str,
    quality: Quality,
    source: Source | None,
    seed: int = 0,
    store: Store | None = None,
    progress: bool = False,
) -> Section:
    """Every figure of `quality` that needs no checkpoint.

    Args:
        records: {"text": …}, and perhaps "reference".
        name: what the report calls them.
        quality: whose scorer, MAUVE and limits are used.
        source: its training part is searched for copies and known words, its held-out part is the real text; None:
            these figures are left out.

    Raises:
        CelerisError: no text has anything in it, or `source` has no held-out text.
    """
    texts = [record["text"] for record in records if record["text"].strip()]
    if not texts:
        raise CelerisError(
            f"Of {len(records)} texts none has anything but white space in it; there is nothing to measure."
        )
    subject = Subject(None, SourceText(source), Characters(), seed, progress, store or Store())  # type: ignore[arg-type]
    given = Texts([Characters().encode(text) for text in texts], texts)
    windows, others = _real(subject, given, source)
    bench = Bench(
        subject,
        quality.scorer,
        windows or given.sequences,  # without real text the figures that compare with it are taken out below
        others,
        quality.mauve if source else None,
        quality.score_characters,
        quality.self_bleu_texts,
        quality.copied_characters,
    )
    setting = {"system": "texts", "num_samples": len(texts), "tokens_are": UNIT}
    measured = bench.measure(f"texts/{name}", name, setting, given)
    real = bench.real({"system": "real text", "num_samples": len(windows), "tokens_are": UNIT}) if source else None
    pairs = [(record["text"], record["reference"]) for record in records if "reference" in record]
    return _section(records, measured, real, bench, quality, _against(pairs, bench))


def _real(subject: Subject, given: Texts, source: Source | None) -> tuple[list[list[int]], list[list[int]]]:
    """Window k of held-out text, as long as text k; and as many others."""
    if source is None:
        return [], []
    count, longest = len(given.texts), max(map(len, given.sequences))
    found = text_windows(subject.data.val_texts(), subject.tokenizer, 2 * count, longest)
    if not found:
        raise CelerisError(f"The held-out text of {source.title} is empty, so there is nothing to compare texts with.")
    windows, others = found[::2][:count], found[1::2][:count]
    return [[ids[: len(text)] for ids, text in zip(side, given.sequences, strict=False)] for side in (windows, others)]  # type: ignore[return-value]


def _against(pairs: list[tuple[str, str]], bench: Bench) -> dict[str, Any] | None:
    if not pairs:
        return None
    try:
        return compare_with_references([text for text, _ in pairs], [reference for _, reference in pairs])
    except CelerisError as error:
        bench.missing["References"] = f"Figures against references are left out. {error}"
        return None


def _section(
    records: Sequence[Mapping[str, str]],
    measured: Measured,
    real: Measured | None,
    bench: Bench,
    quality: Quality,
    against: dict[str, Any] | None,
) -> Section:
    reasons = [*bench.missing.values(), *bench.too_few.values()]
    if real is None:
        reasons.append("Known words, copied spans, MAUVE and real text are left out: name the real text with data=.")

    def entry(m: Measured) -> dict[str, Any]:
        figures = {name: value for name, value in m.figures().items() if name not in NEEDS_A_DECODER}
        figures |= dict.fromkeys(NEEDS_REAL_TEXT) if real is None else {}
        return {
            "key": m.key,
            "label": m.label,
            **m.setting,
            **figures,
            "flags": m.flags(real or m),
            "texts": m.samples.texts,
        }

    counts = {
        "texts": len(records),
        "measured": len(measured.samples.texts),
        "skipped_empty": sum(record["text"] == "" for record in records),
        "skipped_white_space": sum(record["text"] != "" and not record["text"].strip() for record in records),
        "with_reference": sum("reference" in record for record in records),
    }
    figures, beside = entry(measured), entry(real) if real else None
    scorer = quality.scorer if measured.scored["texts_scored"] else None
    mauve = quality.mauve if figures["mauve"] is not None else None
    record = {
        "definitions": {**quality.definitions(scorer, mauve), **AGAINST, "tokens_are": f"tokens are {UNIT}"},
        "scoring": {
            **(scorer.scoring if scorer else {"scorer": None}),
            "tokens_are": UNIT,
            "num_samples": counts["measured"],
            "score_characters": quality.score_characters,
            "mauve": mauve.name if mauve else None,
            "real_text": bench.subject.data.describe()["fingerprint"],
        },
        "counts": counts,
        "real_text": beside or {},
        "settings": [figures],
        "references": against,
    }
    skipped = (
        f"{counts['texts']} texts: {counts['measured']} measured, {counts['skipped_empty']} skipped as empty, "
        f"{counts['skipped_white_space']} as white space only."
    )
    few = [mauve_flag(figures["mauve_samples"])] if mauve and figures["mauve_samples"] < SAMPLES_FOR_MAUVE else []
    return Section(
        "Texts",
        record,
        texts_tables(measured.label, figures, beside, against, skipped, scorer.definition if scorer else None),
        headline=[skipped],
        flags=[*figures["flags"], *few],
        unavailable=reasons,
        scalars={f"texts/{name}": figures[name] for _, name, _ in ROWS if figures[name] is not None},
    )
