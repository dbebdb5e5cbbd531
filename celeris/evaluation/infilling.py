"""Blanks in held-out sentences: what was given must stay, and a filling must fit its own sentence.

The sentence with the filling the model wrote is compared, under an autoregressive judge, with the same sentence and a
filling the model wrote for blanks of the same lengths in another sentence.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Any

import torch

from celeris.errors import CelerisError
from celeris.evaluation.infilling_tables import DEFINITIONS, infilling_section
from celeris.evaluation.judge import LlamaJudge
from celeris.evaluation.masks import Mask, kept, random_masks, template_of, touched_words, with_filling
from celeris.evaluation.record import Section, Subject, describe_solver
from celeris.evaluation.samples import ROOMS, content_hash
from celeris.evaluation.scorer import Scorer
from celeris.evaluation.text_metrics import WordVocabulary
from celeris.model import DiffusionLM
from celeris.sampling import DDIM, Solver, infill
from celeris.sampling.infill import chooses_lengths

Fill = Callable[..., Any]


@singledispatch
def filler(model: Any) -> Fill | None:
    """What fills blanks in with this kind of model, called like `celeris.sampling.infill`; None: nothing does."""
    return None


@filler.register
def _(model: DiffusionLM) -> Fill:
    return infill


@dataclass(frozen=True)
class Filled:
    """Token ids of each row with its blanks filled, and of each of its blanks."""

    sequences: list[list[int]]
    fillings: list[list[list[int]]]


class Infilling:
    """Random blanks in held-out sentences, filled in.

    Args:
        scorer: judges the sentences where `judge` is None.
        judge: export folder, or run, of a Llama baseline; loaded when first needed.
        num_samples: sentences, drawn without replacement, each with its own blanks.
        blanks: blanks of a sentence at most; their number is uniform.
        blank_length: tokens of a blank, uniform in least … most, all blanks together at most half of the sentence.
        longest: characters of a sentence; longer ones are cut at a word.
        num_inference_steps, temperatures: of the settings measured.
        solver: full renoising when None.
        surplus: tokens that a blank is too long by where the model may choose its length (`layout=blanks`).
        batch_size: rows written at once.
        show: fillings of each setting that the report prints.
    """

    def __init__(
        self,
        scorer: Scorer,
        judge: str | None = None,
        num_samples: int = 200,
        blanks: int = 3,
        blank_length: Sequence[int] = (4, 16),
        longest: int = 128,
        num_inference_steps: Sequence[int] = (4, 16),
        temperatures: Sequence[float] = (0.7,),
        solver: Solver | None = None,
        surplus: int = 8,
        batch_size: int = 50,
        show: int = 4,
    ):
        for name, value in (("num_samples", num_samples - 1), ("blanks", blanks), ("batch_size", batch_size)):
            if value < 1:
                raise CelerisError(f"Infilling needs at least 2 sentences and 1 in each; {name} is too small.")
        if len(blank_length) != 2 or not 1 <= blank_length[0] <= blank_length[1]:
            raise CelerisError(f"blank_length is {list(blank_length)}; it must be [least, most], at least 1.")
        if not num_inference_steps or not temperatures:
            raise CelerisError("At least one step count and one temperature are needed.")
        self.judge: Scorer | LlamaJudge = scorer if judge is None else LlamaJudge(judge)
        self.num_samples, self.blanks, self.longest = num_samples, blanks, longest
        self.blank_length = (blank_length[0], blank_length[1])
        self.num_inference_steps, self.temperatures = list(num_inference_steps), list(temperatures)
        self.solver = DDIM(eta=1.0) if solver is None else solver
        self.surplus, self.batch_size, self.show = surplus, batch_size, show

    def __call__(self, subject: Subject) -> Section:
        if filler(subject.model) is None:
            return _left_out(f"Infilling is left out: a {type(subject.model).__name__} fills no blanks in.")
        own_lengths = self.surplus > 0 and chooses_lengths(subject.model.info)
        room = subject.model.max_length - self.blanks * self.surplus * own_lengths
        masks, others = random_masks(
            subject.data.val_texts(), subject.tokenizer, self.num_samples, self.blanks, self.blank_length,
            self.longest, room, subject.seed,
        )  # fmt: skip
        if len(masks) < 2:
            return _left_out(f"Infilling is left out: no two held-out sentences have room for {self.blanks} blanks.")
        try:
            true = self._losses([subject.tokenizer.decode(mask.ids) for mask in masks])
        except CelerisError as error:
            return _left_out(f"Infilling: {error}")
        words, decode = WordVocabulary(subject.data.train_texts()), subject.tokenizer.decode
        entries, free = [], []
        for temperature in self.temperatures:
            for steps in self.num_inference_steps:
                write = partial(self._write, subject, steps, temperature)
                own, other = write(masks, 0, "sentences"), write(others, len(masks), "other sentences")
                found = self._figures(decode, masks, others, own, other, true, words)
                entries.append({**self._setting(subject, steps, temperature), **found})
            if own_lengths:
                free.append({**self._setting(subject, steps, temperature), **self._lengths(decode, masks, write)})
        fillings = [[mask.ids[begin:end] for begin, end in mask.spans] for mask in masks]
        record = {
            "definitions": DEFINITIONS,
            "judge": self.judge.definition,
            "scoring": self.judge.scoring,
            "masks": len(masks),
            "blanks": sum(map(len, fillings)),
            "blank_length": list(self.blank_length),
            "share_blank": sum(len(ids) for row in fillings for ids in row) / sum(len(mask.ids) for mask in masks),
            "templates": ["____".join(map(decode, mask.given)) for mask in masks],
            "true_fillings": [[decode(ids) for ids in row] for row in fillings],
            "true": {
                "nats_per_sentence": statistics.fmean(true),
                "known_words": touched_words(words, decode, masks, fillings),
            },
            "settings": entries,
            "lengths": free,
        }
        return infilling_section(record, self.show)

    def _setting(self, subject: Subject, steps: int, temperature: float) -> dict[str, Any]:
        return {
            "key": f"{subject.model.system}/steps_{steps}/t{temperature:g}",
            "label": f"{steps} steps, T {temperature:g}",
            **subject.provenance(),
            "num_inference_steps": steps,
            "temperature": temperature,
            "solver": describe_solver(self.solver),
        }

    def _write(
        self, subject: Subject, steps: int, temperature: float, masks: Sequence[Mask], first: int, what: str,
        surplus: int = 0,
    ) -> Filled:  # fmt: skip
        """Blanks filled in, row k with seed `subject.seed + first + k`; kept in the store."""
        templates = [template_of(mask, surplus) for mask in masks]
        setting = {"num_inference_steps": steps, "temperature": temperature}
        if subject.progress:
            print(f"infilling: {len(masks)} {what}, {steps} steps, T {temperature:g}", flush=True)

        def make() -> dict[str, Any]:
            sequences, fillings = [], []
            fill = filler(subject.model)
            assert fill is not None
            for place in range(0, len(masks), self.batch_size):
                some = templates[place : place + self.batch_size]
                seed = subject.seed + first + place
                out = fill(subject.model, some, **setting, solver=self.solver, seed=seed)
                sequences += [list(ids) for ids in out.sequences]
                fillings += [[list(ids) for ids in row] for row in out.filled]
            return {"sequences": sequences, "fillings": fillings}

        key = {
            **subject.provenance(),
            **setting,
            "solver": describe_solver(self.solver),
            "masks": content_hash([[mask.ids, mask.spans] for mask in masks]),
            "surplus": surplus,
            "first": first,
            "lengths": chooses_lengths(subject.model.info),
            "tokenizer": subject.tokenizer.fingerprint,
            "torch": torch.__version__,
        }
        rooms = [*ROOMS, "evaluation/infilling.py", "evaluation/masks.py"]
        return Filled(**subject.store.get("infilling", key, make, rooms, f"fillings of {what}, {steps} steps"))

    def _losses(self, texts: Sequence[str]) -> list[float]:
        """Nats of each text."""
        return [math.nan if nll is None else nll.nats for nll in self.judge.score(texts).per_text]

    def _figures(
        self, decode: Callable[[list[int]], str], masks: Sequence[Mask], others: Sequence[Mask], own: Filled,
        other: Filled, true: Sequence[float], words: WordVocabulary,
    ) -> dict[str, Any]:  # fmt: skip
        swapped = [with_filling(mask, filling) for mask, filling in zip(masks, other.fillings, strict=True)]
        texts = [decode(ids) for ids in own.sequences]
        mine, theirs = self._losses(texts), self._losses([decode(ids) for ids in swapped])
        share = share_lower(mine, theirs)
        return {
            "masks": len(masks),
            "given_kept": sum(map(kept, masks, own.sequences, own.fillings)),
            "given_kept_in_other_sentences": sum(map(kept, others, other.sequences, other.fillings)),
            "share_lower": share,
            "standard_error": math.sqrt(share * (1 - share) / len(masks)),
            "share_true_lower": share_lower(true, theirs),
            "true_is_lower": share_lower(true, mine),
            "nats_per_sentence": statistics.fmean(mine),
            "nats_per_sentence_with_another_filling": statistics.fmean(theirs),
            "known_words": touched_words(words, decode, masks, own.fillings),
            "known_words_with_another_filling": touched_words(words, decode, masks, other.fillings),
            "texts": texts,
            "fillings": [[decode(ids) for ids in row] for row in own.fillings],
        }

    def _lengths(
        self, decode: Callable[[list[int]], str], masks: Sequence[Mask], write: Callable[..., Filled]
    ) -> dict[str, Any]:
        """What the model makes of blanks that are `surplus` tokens too long."""
        out = write(masks, 0, "sentences with blanks too long", surplus=self.surplus)
        texts = [decode(ids) for ids in out.sequences]
        wanted = [end - begin for mask in masks for begin, end in mask.spans]
        errors = [len(ids) - n for ids, n in zip((ids for row in out.fillings for ids in row), wanted, strict=True)]
        return {
            "surplus": self.surplus,
            "masks": len(masks),
            "blanks": len(wanted),
            "given_kept": sum(map(kept, masks, out.sequences, out.fillings)),
            "length_exact": sum(error == 0 for error in errors) / len(errors),
            "length_mean_error": statistics.fmean(errors),
            "length_mean_absolute_error": statistics.fmean(map(abs, errors)),
            "never_ended": sum(error == self.surplus for error in errors) / len(errors),
            "nats_per_character": sum(self._losses(texts)) / sum(map(len, texts)),
            "texts": texts,
            "fillings": [[decode(ids) for ids in row] for row in out.fillings],
        }


def share_lower(losses: Sequence[float], others: Sequence[float]) -> float:
    """Share of the pairs whose first loss is lower; equal ones count as not."""
    return sum(a < b for a, b in zip(losses, others, strict=True)) / len(losses)


def _left_out(reason: str) -> Section:
    return Section("Infilling", {"masks": 0, "reason": reason}, [], unavailable=[reason])
