"""Quality of unconditional samples of every decoder, with real held-out text of the same length beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

from celeris.errors import CelerisError
from celeris.evaluation.bench import Bench, Closeness
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.matched_entropy import at_matched_entropy, matched_table
from celeris.evaluation.memorisation import DEFINITIONS as COPIED
from celeris.evaluation.plots import quality_by_steps, quality_frontier
from celeris.evaluation.quality_figures import DEFINITIONS as OWN
from celeris.evaluation.quality_figures import SAMPLES_FOR_MAUVE, Measured, mauve_flag
from celeris.evaluation.quality_tables import quality_tables
from celeris.evaluation.reading import DEFINITIONS as READING
from celeris.evaluation.record import Decoder, Sample, Section, Subject
from celeris.evaluation.samples import write
from celeris.evaluation.scorer import Scorer
from celeris.evaluation.self_bleu import DEFINITION as SELF_BLEU
from celeris.evaluation.text_metrics import DEFINITIONS
from celeris.evaluation.windows import text_windows
from celeris.sampling import DDIM, Solver

REAL_TEXT = "real text"


class Quality:
    """Samples of every decoder of the model (`celeris.evaluation.decoders`), measured and kept.

    Args:
        scorer: reads the texts; when it cannot be loaded its figures are left out and the reason is reported; None:
            they are left out.
        mauve: closeness to real text; None: not measured.
        num_inference_steps: solver steps a block.
        masked_steps: steps of a masked-diffusion model.
        temperatures: of diffusion.
        masked_temperatures: of masked diffusion; None: as `temperatures`.
        autoregressive_temperatures: of what writes token by token, and so needs no sharpening.
        solvers: name → solver; full renoising when None.
        num_samples: rows a setting; row k has seed `subject.seed + k`, the same for every setting.
        length: tokens a row; None: the model's window.
        batch_size: rows generated at once.
        score_characters: the scorer reads whole samples up to this many characters a setting.
        self_bleu_texts: samples of a setting that are compared with one another.
        copied_characters: of the training text, searched for copied spans.
        show: samples of each setting that the report prints.
    """

    def __init__(
        self,
        scorer: Scorer | None,
        mauve: Closeness | None = None,
        num_inference_steps: Sequence[int] = (2, 4, 8, 16),
        masked_steps: Sequence[int] = (32, 64, 128, 256),
        temperatures: Sequence[float] = (0.7,),
        masked_temperatures: Sequence[float] | None = None,
        autoregressive_temperatures: Sequence[float] = (1.0,),
        solvers: Mapping[str, Solver] | None = None,
        num_samples: int = 64,
        length: int | None = None,
        batch_size: int = 64,
        score_characters: int = 6_000,
        self_bleu_texts: int = 64,
        copied_characters: int = 50_000_000,
        show: int = 2,
    ):
        for name, value in (("num_samples", num_samples), ("batch_size", batch_size)):
            if value < 1:
                raise CelerisError(f"Quality needs {name} of at least 1, not {value}.")
        self.scorer = scorer
        self.mauve = mauve
        self.choices = Choices(
            num_inference_steps=num_inference_steps,
            masked_steps=masked_steps,
            temperatures=temperatures,
            masked_temperatures=masked_temperatures,
            autoregressive_temperatures=autoregressive_temperatures,
            solvers={"eta_1": DDIM(eta=1.0)} if solvers is None else solvers,
        )
        self.num_samples = num_samples
        self.length = length
        self.batch_size = batch_size
        self.score_characters = score_characters
        self.self_bleu_texts = self_bleu_texts
        self.copied_characters = copied_characters
        self.show = show

    def __call__(self, subject: Subject) -> Section:
        length = self.length or subject.model.max_length
        found = text_windows(subject.data.val_texts(), subject.tokenizer, 2 * self.num_samples, length)
        windows, others = _spaced(found, self.num_samples)
        if not windows:
            raise CelerisError("The held-out text is empty, so there is nothing to compare samples with.")
        bench = Bench(
            subject,
            self.scorer,
            windows,
            others,
            self.mauve,
            self.score_characters,
            self.self_bleu_texts,
            self.copied_characters,
        )
        real = bench.real({"system": REAL_TEXT, "length": length, "num_samples": len(windows)})
        chosen = decoders(subject.model, self.choices)
        measured = [self._measure(subject, bench, decoder, length) for decoder in chosen]
        return self._section(subject, bench, real, measured)

    def _measure(self, subject: Subject, bench: Bench, decoder: Decoder, length: int) -> Measured:
        samples = write(subject, decoder, length, self.num_samples, self.batch_size)
        setting = {
            **subject.provenance(),
            **decoder.setting,
            "length": length,
            "num_samples": len(samples.texts),
            "batch_size": self.batch_size,
            "seeds": f"{subject.seed} … {subject.seed + self.num_samples - 1}, one a row",
        }
        return bench.measure(decoder.key, decoder.label, setting, samples)

    def _section(self, subject: Subject, bench: Bench, real: Measured, measured: list[Measured]) -> Section:
        scorer = None if real.scored["texts_scored"] == 0 else self.scorer
        mauve = self.mauve if any(m.compared["mauve"] is not None for m in measured) else None

        def entry(m: Measured) -> dict[str, Any]:
            made = {"key": m.key, "label": m.label, **m.setting, "scorer": scorer.name if scorer else None}
            return {**made, **m.figures(), "flags": m.flags(real), "texts": m.samples.texts}

        settings = [entry(m) for m in measured]
        matched = at_matched_entropy(settings)
        record = {
            "definitions": self.definitions(scorer, mauve),
            "scoring": {
                **(scorer.scoring if scorer else {"scorer": None}),
                "length": real.setting["length"],
                "num_samples": self.num_samples,
                "score_characters": self.score_characters,
                "mauve": mauve.name if mauve else None,
                "real_text": subject.data.describe().get("fingerprint"),
            },
            "real_text": entry(real),
            "settings": settings,
            "at_matched_entropy": matched,
        }
        title = f"{real.setting['length']} tokens a row, {self.num_samples} rows a setting"
        tables = quality_tables(
            title, measured, real, scorer.definition if scorer else None, mauve.definition if mauve else None
        )
        used = [int(m.compared["mauve_samples"] or 0) for m in measured if m.compared["mauve"] is not None]
        few = [mauve_flag(min(used))] if used and min(used) < SAMPLES_FOR_MAUVE else []
        plots = {"quality_by_steps": quality_by_steps(record)}
        if scorer:
            plots["quality_frontier"] = quality_frontier(record)
        return Section(
            "Text quality",
            record,
            [*tables, matched_table(matched)] if matched else tables,
            flags=[*(flag for m in measured for flag in m.flags(real)), *few],
            unavailable=[*bench.missing.values(), *bench.too_few.values()],
            samples=[Sample(m.label, text) for m in measured for text in m.samples.texts[: self.show]],
            plots=plots,
            scalars={name: value for m in measured for name, value in m.scalars().items()},
        )

    @staticmethod
    def definitions(scorer: Scorer | None, mauve: Closeness | None) -> dict[str, str | None]:
        return {
            **DEFINITIONS,
            **OWN,
            **READING,
            **COPIED,
            "self_bleu_4": SELF_BLEU,
            **({"mauve": mauve.definition} if mauve else {}),
            **({"scorer": scorer.name, "gen_ppl": scorer.definition} if scorer else {"scorer": None}),
        }


def _spaced(windows: Sequence[list[int]], count: int) -> tuple[list[list[int]], list[list[int]]]:
    """`count` of the windows, evenly spaced, and the rest."""
    chosen = {k * len(windows) // count for k in range(count)} if len(windows) > count else set(range(len(windows)))
    rest = [ids for k, ids in enumerate(windows) if k not in chosen]
    return [windows[k] for k in sorted(chosen)], rest
