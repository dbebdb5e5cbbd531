"""Quality of unconditional samples per step count, temperature and solver, with real held-out text of the same length
beside it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from celeris.errors import CelerisError
from celeris.evaluation.matched_entropy import at_matched_entropy, matched_table
from celeris.evaluation.plots import quality_by_steps, quality_frontier
from celeris.evaluation.quality_figures import DEFINITION_OF_CALLS, Measured, Texts, quality_tables, slug
from celeris.evaluation.record import AUTOREGRESSIVE, Output, Sample, Section, Subject, describe_solver, synchronize
from celeris.evaluation.scorer import Scorer
from celeris.evaluation.text_metrics import DEFINITIONS, WordVocabulary, describe, entropy
from celeris.evaluation.timing import real_tokens
from celeris.evaluation.windows import text_windows
from celeris.noise.path import fitting_stagger
from celeris.sampling import DDIM, Solver


@dataclass(frozen=True)
class _Yardstick:
    """What every setting is held against."""

    windows: list[list[int]]
    vocabulary: WordVocabulary
    scorer: Scorer | None


class _Setting(NamedTuple):
    steps: int
    temperature: float
    name: str
    solver: Solver


class Quality:
    """Samples for every step count, temperature and solver, measured; only the generative perplexity needs a scorer.

    Args:
        scorer: reads the texts; when it cannot be loaded its figures are left out and the reason is reported.
        num_inference_steps: solver steps a block; the report also says how many denoiser calls they were.
        temperatures: of the sampler.
        solvers: name → solver; full renoising when None.
        num_samples: rows a setting; row k has seed `subject.seed + k`, the same for every setting.
        length: tokens a row; None: the model's window.
        autoregressive_temperature: of the second decoder, which draws its tokens and so needs no sharpening.
        batch_size: rows generated at once.
        score_characters: the scorer reads whole samples up to this many characters a setting.
        show: samples of each setting that the report prints.

    The autoregressive decoder of a model that has one is measured in the same way, for comparison.
    """

    def __init__(
        self,
        scorer: Scorer,
        num_inference_steps: Sequence[int] = (2, 4, 8, 16),
        temperatures: Sequence[float] = (0.7,),
        solvers: Mapping[str, Solver] | None = None,
        num_samples: int = 64,
        length: int | None = None,
        autoregressive_temperature: float = 1.0,
        batch_size: int = 64,
        score_characters: int = 6_000,
        show: int = 2,
    ):
        if num_samples < 1:
            raise CelerisError(f"Quality needs at least 1 sample, not num_samples={num_samples}.")
        solvers = {"eta_1": DDIM(eta=1.0)} if solvers is None else solvers
        if not num_inference_steps or not temperatures or not solvers:
            raise CelerisError("Quality needs at least one step count, one temperature and one solver.")
        if len({slug(name) for name in solvers}) < len(solvers):
            raise CelerisError(f"Names of solvers must differ in letters or digits, unlike {', '.join(solvers)}.")
        self.scorer = scorer
        self.settings = [
            _Setting(steps, temperature, name, solver)
            for steps, temperature, (name, solver) in product(num_inference_steps, temperatures, solvers.items())
        ]
        self.varies = [len(values) > 1 for values in (num_inference_steps, solvers, temperatures)]
        self.num_samples = num_samples
        self.length = length
        self.autoregressive_temperature = autoregressive_temperature
        self.batch_size = batch_size
        self.score_characters = score_characters
        self.show = show

    def __call__(self, subject: Subject) -> Section:
        length = self.length or subject.model.max_length
        windows = text_windows(subject.data.val_texts(), subject.tokenizer, self.num_samples, length)
        if not windows:
            raise CelerisError("The held-out text is empty, so there is nothing to compare samples with.")
        unavailable: list[str] = []
        try:
            self.scorer.score(["A first text."])
        except CelerisError as error:
            unavailable.append(f"Generative perplexity is left out. {error}")
        yardstick = _Yardstick(
            windows, WordVocabulary(subject.data.train_texts()), None if unavailable else self.scorer
        )
        reference = Texts(windows, [subject.tokenizer.decode(ids) for ids in windows])
        setting = {"length": length, "num_samples": len(windows)}
        real = self._measure(subject, "real text", setting, reference, yardstick)
        measured = []
        for steps, temperature, name, solver in self.settings:
            decoder = partial(subject.generate, num_inference_steps=steps, solver=solver, temperature=temperature)
            calls = self._warm_up(subject, decoder, length)
            setting = {
                "num_inference_steps": steps,
                "nfe_per_block": calls,
                "solver_name": name,
                "solver": describe_solver(solver),
                "temperature": temperature,
                "stagger": fitting_stagger(subject.model.stagger, steps),
                "block_length": subject.model.block_length,
            }
            words = self._words(setting)
            named = [word for word, varies in zip(words, self.varies, strict=True) if varies] or words[:1]
            label = ", ".join(named) + (f" ({calls} calls)" if calls != steps else "")
            measured.append(self._setting(subject, label, setting, decoder, length, yardstick))
        second = None
        if subject.autoregressive is not None:
            temperature = self.autoregressive_temperature
            decoder = partial(subject.autoregressive, temperature=temperature)
            setting = {"num_inference_steps": None, "temperature": temperature, "block_length": 1}
            self._warm_up(subject, decoder, length)
            label = f"{AUTOREGRESSIVE}, T {temperature:g}"
            second = self._setting(subject, label, setting, decoder, length, yardstick)
        return self._section(subject, real, measured, second, yardstick, unavailable)

    @staticmethod
    def _words(setting: Mapping[str, Any]) -> list[str]:
        """What can vary, in words: steps, solver, temperature."""
        return [f"{setting['num_inference_steps']} steps", setting["solver_name"], f"T {setting['temperature']:g}"]

    def _warm_up(self, subject: Subject, decoder: Callable[..., Output], length: int) -> int:
        """One block of one row, before the clock runs; the denoiser calls it took."""
        return self._generate(subject, decoder, min(length, subject.model.block_length), 1).calls

    def _setting(
        self,
        subject: Subject,
        label: str,
        setting: dict[str, Any],
        decoder: Callable[..., Output],
        length: int,
        yardstick: _Yardstick,
    ) -> Measured:
        samples = self._generate(subject, decoder, length, self.num_samples)
        setting = {
            **setting,
            "length": length,
            "num_samples": len(samples.texts),
            "seeds": f"{subject.seed} … {subject.seed + self.num_samples - 1}, one a row",
        }
        return self._measure(subject, label, setting, samples, yardstick)

    def _generate(self, subject: Subject, decoder: Callable[..., Output], length: int, count: int) -> Texts:
        tokenizer, device = subject.tokenizer, subject.model.device
        sequences: list[list[int]] = []
        calls = 0
        synchronize(device)
        start = time.perf_counter()
        for first in range(0, count, self.batch_size):
            output = decoder(
                subject.model,
                [""],
                num_samples=min(self.batch_size, count - first),
                max_new_tokens=length,
                seed=subject.seed + first,
            )
            sequences += [real_tokens(ids, tokenizer.eos_id, tokenizer.pad_id) for ids in output.sequences]
            calls += sum(output.nfe)
        synchronize(device)
        seconds = time.perf_counter() - start
        return Texts(sequences, [tokenizer.decode(ids) for ids in sequences], seconds, calls)

    def _measure(
        self, subject: Subject, label: str, setting: dict[str, Any], samples: Texts, yardstick: _Yardstick
    ) -> Measured:
        if subject.progress:
            print(f"quality: {label}", flush=True)
        windows = yardstick.windows
        same_length = [windows[k % len(windows)][: len(ids)] for k, ids in enumerate(samples.sequences)]
        return Measured(
            label,
            setting,
            samples,
            describe(samples.sequences, samples.texts, yardstick.vocabulary, subject.tokenizer.unk_id),
            yardstick.scorer.score(self._affordable(samples.texts)) if yardstick.scorer else None,
            sum(map(entropy, same_length)) / len(same_length),
        )

    def _affordable(self, texts: list[str]) -> list[str]:
        """The first texts, whole, that fit into `score_characters`; at least one."""
        kept, characters = 1, len(texts[0])
        while kept < len(texts) and characters + len(texts[kept]) <= self.score_characters:
            characters += len(texts[kept])
            kept += 1
        return texts[:kept]

    def _section(
        self,
        subject: Subject,
        real: Measured,
        measured: list[Measured],
        second: Measured | None,
        yardstick: _Yardstick,
        unavailable: list[str],
    ) -> Section:
        provenance = subject.provenance()
        scorer = yardstick.scorer
        scored_by = {"scorer": scorer.name, "gen_ppl": scorer.definition} if scorer else {"scorer": None}

        def entry(m: Measured) -> dict[str, Any]:
            made = {"label": m.label, **provenance, **m.setting, "scorer": scored_by["scorer"]}
            return {**made, **m.figures(), "flags": m.flags(real), "texts": m.samples.texts}

        settings = [entry(m) for m in measured]
        matched = at_matched_entropy(settings)
        record = {
            "definitions": {**DEFINITIONS, "calls_per_token": DEFINITION_OF_CALLS, **scored_by},
            "training_words": len(yardstick.vocabulary),
            "real_text": entry(real),
            "settings": settings,
            "at_matched_entropy": matched,
            "autoregressive": entry(second) if second else None,
        }
        decoded = [*measured, *([second] if second else [])]
        fixed = [word for word, varies in zip(self._words(settings[0]), self.varies, strict=True) if not varies]
        title = ", ".join([f"{real.setting['length']} tokens a row", f"{self.num_samples} rows a setting", *fixed])
        tables = quality_tables(title, decoded, real, scorer.definition if scorer else None)
        plots = {"quality_by_steps": quality_by_steps(record)}
        if scorer:
            plots["quality_frontier"] = quality_frontier(record)
        return Section(
            "Text quality",
            record,
            [*tables, matched_table(matched)] if matched else tables,
            flags=[flag for m in decoded for flag in m.flags(real)],
            unavailable=unavailable,
            samples=[Sample(m.label, text) for m in decoded for text in m.samples.texts[: self.show]],
            plots=plots,
            scalars={name: value for m in measured for name, value in m.scalars().items()},
        )
