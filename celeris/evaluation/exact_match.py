"""How often a model answers held-out prompts exactly, by decoder, number of steps and guidance; and with the prompts of
others, which is what answering without reading the prompt would reach."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from celeris.data.sources.base import PairSource
from celeris.errors import CelerisError
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.record import Decoder, Sample, Section, Subject, Table
from celeris.evaluation.samples import write
from celeris.evaluation.slug import slug
from celeris.sampling import DDIM, Solver

TRUE, WRONG = "its own prompt", "another row's prompt"
DEFINITIONS = {
    "exact_match": "share of the responses with score 1 by the source's own scorer (reasoning-gym's `score_answer`); "
    "of a source without one, those that equal the reference",
    "identical": "share of the responses that equal the reference character by character",
    "standard_error": "sqrt(p·(1 − p)/n)",
    WRONG: "row k gets the prompt of row k + 1 and is scored against its own reference: what answering without "
    "reading the prompt would reach",
}
Score = Callable[[int, str], float]


@dataclass(frozen=True)
class Questions:
    """Held-out pairs that fit the window.

    Attributes:
        prompts: token ids of "<|user|> prompt <|assistant|>".
        references: the responses wanted.
        numbers: of the pairs in the held-out split, for the scorer.
        max_new_tokens: of the longest reference, EOS included.
        skipped: pairs too long for the window.
    """

    prompts: list[tuple[int, ...]]
    references: list[str]
    numbers: list[int]
    max_new_tokens: int
    skipped: int


class ExactMatch:
    """Exact answers to held-out prompts of a source of pairs.

    Args:
        num_samples: pairs used at most, the first of the held-out ones.
        max_new_tokens: what a decoder may write; None: as many as the longest reference has.
        num_inference_steps, masked_steps, temperatures, autoregressive_temperatures, solvers: of the decoders, as in
            `celeris.evaluation.decoders.Choices`; a temperature of 0 always takes the most probable token.
        guidance_scales: further scales of classifier-free guidance, at the largest number of steps.
        batch_size: rows generated at once.
        show: wrong answers of each decoder that the report prints.
    """

    def __init__(
        self,
        num_samples: int = 200,
        max_new_tokens: int | None = None,
        num_inference_steps: Sequence[int] = (1, 2, 4, 8, 16),
        masked_steps: Sequence[int] = (1, 2, 4, 8, 16),
        temperatures: Sequence[float] = (0.0,),
        autoregressive_temperatures: Sequence[float] = (0.0,),
        solvers: Mapping[str, Solver] | None = None,
        guidance_scales: Sequence[float] = (1.5, 2.0),
        batch_size: int = 50,
        show: int = 2,
    ):
        for name, value in (("num_samples", num_samples), ("batch_size", batch_size)):
            if value < 1:
                raise CelerisError(f"ExactMatch needs {name} of at least 1, not {value}.")
        self.num_samples, self.max_new_tokens = num_samples, max_new_tokens
        self.choices = Choices(
            num_inference_steps=num_inference_steps,
            masked_steps=masked_steps,
            temperatures=temperatures,
            autoregressive_temperatures=autoregressive_temperatures,
            solvers={"eta_1": DDIM(eta=1.0)} if solvers is None else solvers,
        )
        self.guidance_scales = list(guidance_scales)
        self.batch_size, self.show = batch_size, show

    def __call__(self, subject: Subject) -> Section:
        source = getattr(subject.data, "source", None)
        if not isinstance(source, PairSource) or not subject.tokenizer.roles:
            return _left_out("Exact match is left out: the model's data has no prompts with responses.")
        questions = self.choose(subject, source)
        if not questions.prompts:
            return _left_out("Exact match is left out: no held-out pair fits the model's window.")

        def score(row: int, response: str) -> float:
            if hasattr(source, "score"):
                return float(source.score("val", questions.numbers[row], response))
            return float(response == questions.references[row])

        others = [*questions.prompts[1:], questions.prompts[0]]
        entries = []
        for decoder in self.chosen(subject):
            if subject.progress:
                print(f"exact match: {decoder.label}", flush=True)
            for which, prompts in ((TRUE, questions.prompts), (WRONG, others)):
                if which == WRONG and decoder.setting.get("guidance_scale"):
                    continue
                texts = self._texts(subject, decoder, questions, prompts)
                entries.append(
                    {
                        "key": decoder.key,
                        "label": decoder.label,
                        "prompt": which,
                        **subject.provenance(),
                        **decoder.setting,
                        **figures(texts, questions.references, score),
                        "texts": texts,
                    }
                )
        return self._section(source.title, questions, entries, score)

    def choose(self, subject: Subject, source: PairSource) -> Questions:
        """The held-out pairs that fit, prompts as token ids."""
        prompts: list[tuple[int, ...]] = []
        references, numbers, longest, skipped = [], [], 1, 0
        for number, pair in enumerate(source.pairs("val")):
            if len(prompts) == self.num_samples:
                break
            if pair.prompt is None:
                continue
            ids = subject.tokenizer.encode_chat([{"role": "user", "content": pair.prompt}])
            length = self.max_new_tokens or len(subject.tokenizer.encode(pair.response)) + 1
            if len(ids) + length > subject.model.max_length:
                skipped += 1
                continue
            prompts.append(tuple(ids))
            references.append(pair.response)
            numbers.append(number)
            longest = max(longest, length)
        room = subject.model.max_length - max(map(len, prompts), default=0)
        return Questions(prompts, references, numbers, min(longest, room), skipped)

    def chosen(self, subject: Subject) -> list[Decoder]:
        """The decoders, and those with guidance."""
        found = decoders(subject.model, self.choices)
        most = max(self.choices.num_inference_steps)
        return found + [
            replace(
                decoder,
                key=f"{decoder.key}/g{scale:g}",
                label=f"{decoder.label}, guidance {scale:g}",
                setting={**decoder.setting, "guidance_scale": scale},
                generate=partial(decoder.generate, guidance_scale=scale),
            )
            for decoder in found
            if decoder.setting.get("decoder") == "diffusion" and decoder.setting["num_inference_steps"] == most
            for scale in self.guidance_scales
        ]

    def _texts(
        self, subject: Subject, decoder: Decoder, questions: Questions, prompts: Sequence[tuple[int, ...]]
    ) -> list[str]:
        # Prompts are ids here: a text would be continued, not answered.
        ids: Any = prompts
        return write(subject, decoder, questions.max_new_tokens, len(prompts), self.batch_size, ids).texts

    def _section(self, title: str, questions: Questions, entries: list[dict[str, Any]], score: Score) -> Section:
        right = {entry["key"]: entry for entry in entries if entry["prompt"] == TRUE}
        wrong = {entry["key"]: entry for entry in entries if entry["prompt"] == WRONG}
        record = {
            "definitions": DEFINITIONS,
            "source": title,
            "pairs": len(questions.prompts),
            "skipped_long": questions.skipped,
            "max_new_tokens": questions.max_new_tokens,
            "settings": entries,
        }
        table = Table(
            f"Exact match: {len(questions.prompts)} held-out prompts of {title}",
            ["", "exact match", "identical", WRONG],
            [
                [
                    entry["label"],
                    _percent(entry["exact_match"], entry["standard_error"]),
                    f"{entry['identical']:.1%}",
                    _percent(wrong[key]["exact_match"], wrong[key]["standard_error"]) if key in wrong else "–",
                ]
                for key, entry in right.items()
            ],
            [f"{name}: {meaning}." for name, meaning in DEFINITIONS.items()],
        )
        best = max(right.values(), key=lambda entry: entry["exact_match"])
        share = _percent(best["exact_match"], best["standard_error"])
        sentence = f"{best['label']} answers {share} of {len(questions.prompts)} prompts of {title} exactly."
        shown = [
            Sample(f"{entry['label']}, wrong", f"{text!r} instead of {questions.references[row]!r}")
            for entry in right.values()
            for row, text in [(row, t) for row, t in enumerate(entry["texts"]) if score(row, t) < 1][: self.show]
        ]
        scalars = {f"exact_match/{slug(key)}": entry["exact_match"] for key, entry in right.items()}
        scalars |= {f"exact_match/wrong_prompt/{slug(key)}": entry["exact_match"] for key, entry in wrong.items()}
        plots = {"exact_match_by_steps": exact_match_by_steps(record)}
        return Section("Exact match", record, [table], [sentence], samples=shown, plots=plots, scalars=scalars)


def figures(texts: Sequence[str], references: Sequence[str], score: Score) -> dict[str, float]:
    """Exact match with its standard error, the mean of partial scores, and identical responses."""
    scores = [score(row, text) for row, text in enumerate(texts)]
    share = sum(value == 1 for value in scores) / len(scores)
    return {
        "exact_match": share,
        "standard_error": math.sqrt(share * (1 - share) / len(scores)),
        "mean_score": sum(scores) / len(scores),
        "identical": sum(text == wanted for text, wanted in zip(texts, references, strict=True)) / len(scores),
    }


def exact_match_by_steps(record: Mapping[str, Any]) -> Callable[[Any], None]:
    """Exact match over steps a block, with the prompt and with another's; what writes token by token as a line."""

    def draw(axes: Any) -> None:
        plain = [entry for entry in record["settings"] if not entry.get("guidance_scale")]
        for which, color in ((TRUE, "C0"), (WRONG, "C3")):
            groups: dict[str, list[Any]] = {}
            for entry in plain:
                if entry["prompt"] == which:
                    words = [part for part in entry["label"].split(", ") if not part.endswith(" steps")]
                    groups.setdefault(", ".join(words), []).append(entry)
            for name, group in groups.items():
                label = f"{name}, {which}"
                if group[0].get("num_inference_steps") is None:
                    axes.axhline(group[0]["exact_match"], color=color, linestyle=":", label=label)
                    continue
                steps = [entry["num_inference_steps"] for entry in group]
                errors = [entry["standard_error"] for entry in group]
                axes.errorbar(steps, [entry["exact_match"] for entry in group], errors, color=color, label=label)
        axes.set(xscale="log", xlabel="steps a block", ylabel="exact match", ylim=(-0.02, 1.02))
        axes.legend(fontsize=6)

    return draw


def _percent(value: float, error: float) -> str:
    return f"{value:.1%} ± {error:.1%}"


def _left_out(reason: str) -> Section:
    return Section("Exact match", {"pairs": 0, "reason": reason}, [], unavailable=[reason])
