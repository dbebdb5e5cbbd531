"""Every figure of a set of texts, measured against real text, each measured once and kept.

A figure whose package is missing is left out everywhere, with the reason; the others stand.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, Protocol, TypeVar

from celeris.errors import CelerisError
from celeris.evaluation.memorisation import Memorisation
from celeris.evaluation.quality_figures import Measured
from celeris.evaluation.reading import UNREAD, read
from celeris.evaluation.record import Subject
from celeris.evaluation.samples import Texts, content_hash
from celeris.evaluation.scorer import Scorer
from celeris.evaluation.self_bleu import self_bleu
from celeris.evaluation.text_metrics import TextStatistics, WordVocabulary, describe, entropy

T = TypeVar("T")

ROOMS = {
    "statistics": ("evaluation/text_metrics.py",),
    "self_bleu": ("evaluation/self_bleu.py",),
    "copied": ("evaluation/memorisation.py",),
    "mauve": ("evaluation/features.py", "evaluation/mauve.py"),
}
"""Kind of figure → whose code decides it."""


class MauveResult(Protocol):
    """Mean and spread over clustering seeds."""

    @property
    def mean(self) -> float | None: ...

    @property
    def sd(self) -> float | None: ...

    @property
    def samples(self) -> int: ...

    @property
    def warning(self) -> str | None: ...


class Closeness(Protocol):
    """How close a set of texts is to another, as `celeris.evaluation.mauve.Mauve` says it."""

    name: str
    definition: str

    def __call__(self, texts: Sequence[str], reference_texts: Sequence[str]) -> MauveResult: ...


class Bench:
    """Measures sets of texts.

    Args:
        subject: whose data and store are used.
        scorer: reads the texts; None: its figures are left out.
        windows: real text of the samples' length, token ids.
        others: as many other windows of real text, which the real text is held against.
        mauve: closeness to real text; None: not measured.
        score_characters: the scorer reads whole texts up to this many characters a setting.
        self_bleu_texts: texts of a setting that are compared with one another.
        copied_characters: of the training text, searched for copied spans.
    """

    def __init__(
        self,
        subject: Subject,
        scorer: Scorer | None,
        windows: Sequence[Sequence[int]],
        others: Sequence[Sequence[int]],
        mauve: Closeness | None,
        score_characters: int,
        self_bleu_texts: int,
        copied_characters: int,
    ):
        self.subject = subject
        self.scorer = scorer
        self.windows = windows
        self.mauve = mauve
        self.score_characters = score_characters
        self.self_bleu_texts = self_bleu_texts
        self.copied_characters = copied_characters
        self.reference = [subject.tokenizer.decode(list(ids)) for ids in windows]
        self.others = [subject.tokenizer.decode(list(ids)) for ids in others]
        self.missing: dict[str, str] = {}
        """Figure → why it is left out."""
        self.too_few: dict[int, str] = {}
        """Number of texts → that MAUVE is undefined for so few."""
        self._data = subject.data.describe().get("fingerprint")

    @cached_property
    def vocabulary(self) -> WordVocabulary:
        return WordVocabulary(self.subject.data.train_texts())

    @cached_property
    def memorisation(self) -> Memorisation:
        return Memorisation(self.subject.data.train_texts(), max_characters=self.copied_characters)

    def real(self, setting: dict[str, Any]) -> Measured:
        """The windows themselves, as what everything else is held against."""
        texts = Texts([list(ids) for ids in self.windows], self.reference)
        return self.measure("real", "real text", setting, texts, self.others)

    def measure(
        self, key: str, label: str, setting: dict[str, Any], samples: Texts, reference: Sequence[str] | None = None
    ) -> Measured:
        """All figures of `samples`.

        Args:
            key, label, setting: as in `celeris.evaluation.record.Decoder`.
            reference: what MAUVE compares with; None: the windows of real text.
        """
        if self.subject.progress:
            print(f"quality: {label}", flush=True)
        cut = [self.windows[k % len(self.windows)][: len(ids)] for k, ids in enumerate(samples.sequences)]
        return Measured(
            key=key,
            label=label,
            setting=setting,
            samples=samples,
            statistics=self._statistics(samples, label),
            scored=self._scored(samples.texts, label),
            compared={
                "self_bleu_4": self._self_bleu(samples.texts, label),
                **self._copied(samples.texts, label),
                **self._mauve(samples.texts, self.reference if reference is None else reference, label),
            },
            real_entropy=sum(map(entropy, cut)) / len(cut),
        )

    def _statistics(self, samples: Texts, label: str) -> TextStatistics:
        unk = self.subject.tokenizer.unk_id
        key = {"samples": samples.hash, "training_text": self._data, "unk": unk}

        def make() -> dict[str, Any]:
            return asdict(describe(samples.sequences, samples.texts, self.vocabulary, unk))

        return TextStatistics(**self._keep("statistics", key, make, label))

    def _scored(self, texts: list[str], label: str) -> dict[str, Any]:
        scorer = self.scorer
        if scorer is None:
            return dict(UNREAD)

        def make() -> dict[str, Any]:
            return read(scorer, texts, self.score_characters, self.subject.store, label).figures()

        return self._try("Generative perplexity", make) or dict(UNREAD)

    def _self_bleu(self, texts: list[str], label: str) -> float | None:
        most, seed = self.self_bleu_texts, self.subject.seed
        key = {"texts": content_hash(texts), "max_texts": most, "seed": seed}

        def make() -> float | None:
            return self_bleu(texts, n=4, max_texts=most, seed=seed)

        return self._try("Self-BLEU", lambda: self._keep("self_bleu", key, make, label))

    def _copied(self, texts: list[str], label: str) -> dict[str, float | None]:
        key = {"texts": content_hash(texts), "training_text": self._data, "characters": self.copied_characters}

        def make() -> list[int]:
            return self.memorisation.longest(texts)

        spans = self._try("Memorisation", lambda: self._keep("copied", key, make, label))
        if not spans:
            return {"copied_longest": None, "copied_mean": None}
        return {"copied_longest": max(spans), "copied_mean": sum(spans) / len(spans)}

    def _mauve(self, texts: list[str], reference: Sequence[str], label: str) -> dict[str, float | None]:
        nothing: dict[str, float | None] = {"mauve": None, "mauve_sd": None, "mauve_samples": None}
        mauve = self.mauve
        if mauve is None or not reference:
            return nothing
        key = {"texts": content_hash(texts), "reference": content_hash(list(reference)), "by": mauve.definition}

        def make() -> dict[str, Any]:
            found = mauve(texts, reference)
            return {"mean": found.mean, "sd": found.sd, "samples": found.samples, "warning": found.warning}

        found = self._try("MAUVE", lambda: self._keep("mauve", key, make, label))
        if found is None:
            return nothing
        if found["mean"] is None:
            self.too_few[found["samples"]] = found["warning"]
        return {"mauve": found["mean"], "mauve_sd": found["sd"], "mauve_samples": found["samples"]}

    def _keep(self, kind: str, key: dict[str, Any], make: Callable[[], Any], label: str) -> Any:
        return self.subject.store.get(kind, key, make, ROOMS[kind], f"{kind.replace('_', '-')} of {label}")

    def _try(self, figure: str, make: Callable[[], T]) -> T | None:
        if figure in self.missing:
            return None
        try:
            return make()
        except CelerisError as error:
            self.missing[figure] = f"{figure} is left out. {error}"
            return None
