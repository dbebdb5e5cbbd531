"""Prompts with the texts that are wanted: exact match, BLEU, chrF and ROUGE of what each decoder writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celeris.errors import CelerisError
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.jsonl import read_records
from celeris.evaluation.record import Sample, Section, Subject, Table
from celeris.evaluation.references import DEFINITIONS, compare_with_references
from celeris.evaluation.samples import write
from celeris.evaluation.slug import slug
from celeris.evaluation.windows import prompt_pairs
from celeris.sampling import DDIM, Solver

COLUMNS = (
    ("exact", "exact_match", ".1%"),
    ("BLEU", "bleu", ".1f"),
    ("chrF", "chrf", ".1f"),
    ("R-1", "rouge_1", ".3f"),
    ("R-2", "rouge_2", ".3f"),
    ("R-L", "rouge_l", ".3f"),
    ("empty", "empty", "d"),
)
CHANCE = "another pair's reference"


@dataclass(frozen=True)
class Chosen:
    """Pairs that fit, and what was done to make them fit.

    Attributes:
        prompts, references: entry k of each belong together.
        max_new_tokens: what a decoder may write.
        skipped: pairs whose prompt leaves no room for that.
        long_references: references of more tokens than may be written, which no output can match.
    """

    prompts: list[str]
    references: list[str]
    max_new_tokens: int
    skipped: int
    long_references: int


class Pairs:
    """Continuations of given prompts against given references, by every decoder of the model.

    Args:
        path: a file of {"prompt": "…", "reference": "…"}, one a line; None: held-out paragraphs cut in the middle.
        num_samples: pairs used at most, the first of the file.
        max_new_tokens: what a decoder may write; None: the longest reference, at most half the window.
        num_inference_steps, masked_steps, temperatures, autoregressive_temperatures, solvers: of the decoders, as in
            `celeris.evaluation.decoders.Choices`; a temperature of 0 always takes the most probable token.
        batch_size: rows generated at once.
        show: outputs of each decoder that the report prints.
    """

    def __init__(
        self,
        path: str | None = None,
        num_samples: int = 64,
        max_new_tokens: int | None = None,
        num_inference_steps: Sequence[int] = (2, 4, 8, 16),
        masked_steps: Sequence[int] = (32, 64, 128, 256),
        temperatures: Sequence[float] = (0.0,),
        autoregressive_temperatures: Sequence[float] = (0.0,),
        solvers: Mapping[str, Solver] | None = None,
        batch_size: int = 64,
        show: int = 1,
    ):
        for name, value in (("num_samples", num_samples), ("batch_size", batch_size)):
            if value < 1:
                raise CelerisError(f"Pairs needs {name} of at least 1, not {value}.")
        if max_new_tokens is not None and max_new_tokens < 1:
            raise CelerisError(f"Pairs needs max_new_tokens of at least 1, not {max_new_tokens}.")
        self.path = path
        self.num_samples = num_samples
        self.max_new_tokens = max_new_tokens
        self.choices = Choices(
            num_inference_steps=num_inference_steps,
            masked_steps=masked_steps,
            temperatures=temperatures,
            autoregressive_temperatures=autoregressive_temperatures,
            solvers={"eta_1": DDIM(eta=1.0)} if solvers is None else solvers,
        )
        self.batch_size = batch_size
        self.show = show

    def __call__(self, subject: Subject) -> Section:
        chosen = self.choose(subject)
        if not chosen.prompts:
            reason = (
                f"Pairs are left out: of {chosen.skipped} prompts none leaves room for {chosen.max_new_tokens} new "
                f"tokens in the window of {subject.model.max_length}; shorten them or set a smaller max_new_tokens."
            )
            return Section("Pairs", {"pairs": 0, "reason": reason}, [], unavailable=[reason])
        others = [*chosen.references[1:], *chosen.references[:1]]
        try:
            chance = compare_with_references(others, chosen.references)
        except CelerisError as error:
            return Section("Pairs", {"pairs": 0, "reason": str(error)}, [], unavailable=[f"Pairs: {error}"])
        entries = []
        for decoder in decoders(subject.model, self.choices):
            if subject.progress:
                print(f"pairs: {decoder.label}", flush=True)
            count = len(chosen.prompts)
            made = write(subject, decoder, chosen.max_new_tokens, count, self.batch_size, chosen.prompts)
            entries.append(
                {
                    "key": decoder.key,
                    "label": decoder.label,
                    **subject.provenance(),
                    **decoder.setting,
                    "seeds": f"{subject.seed} … {subject.seed + count - 1}, one a row",
                    **compare_with_references(made.texts, chosen.references),
                    "texts": made.texts,
                }
            )
        return self._section(chosen, chance, entries)

    def choose(self, subject: Subject) -> Chosen:
        """The pairs that are used. Raises CelerisError for a file that cannot be read or has no pairs."""
        tokenizer, window = subject.tokenizer, subject.model.max_length
        if self.path is None:
            length = min(self.max_new_tokens or window // 2, window // 2)
            halves = prompt_pairs(subject.data.val_texts(), tokenizer, self.num_samples, length, length, subject.seed)
            prompts = [tokenizer.decode(ids) for ids in halves.prompts.tolist()]
            references = [tokenizer.decode(ids) for ids in halves.continuations.tolist()]
        else:
            records = read_records(Path(self.path).expanduser(), ["prompt", "reference"])[: self.num_samples]
            if not records:
                raise CelerisError(f"There are no pairs in {self.path}; write one object a line.")
            prompts = [record["prompt"] for record in records]
            references = [record["reference"] for record in records]
        lengths = [len(ids) for ids in tokenizer.encode_batch(references)]
        room = self.max_new_tokens or max(1, min(max(lengths, default=window), window // 2))
        fits = [k for k, ids in enumerate(tokenizer.encode_batch(prompts)) if len(ids) + room <= window]
        return Chosen(
            [prompts[k] for k in fits],
            [references[k] for k in fits],
            room,
            len(prompts) - len(fits),
            sum(lengths[k] > room for k in fits),
        )

    def _section(self, chosen: Chosen, chance: dict[str, Any], entries: list[dict[str, Any]]) -> Section:
        source = "held-out paragraphs cut in the middle" if self.path is None else str(self.path)
        record = {
            "definitions": DEFINITIONS,
            "source": source,
            "pairs": len(chosen.prompts),
            "skipped_long_prompts": chosen.skipped,
            "max_new_tokens": chosen.max_new_tokens,
            "long_references": chosen.long_references,
            "chance": {"label": CHANCE, **chance},
            "settings": entries,
        }
        rows = [
            [
                str(entry["label"]),
                *("–" if entry[name] is None else format(entry[name], form) for _, name, form in COLUMNS),
            ]
            for entry in [*entries, {"label": CHANCE, **chance}]
        ]
        table = Table(
            f"Pairs: {len(chosen.prompts)} of {source}, at most {chosen.max_new_tokens} new tokens",
            ["", *(heading for heading, _, _ in COLUMNS)],
            rows,
            [
                f"exact: {DEFINITIONS['exact_match']}.",
                f"BLEU: {chance['bleu_signature']}; chrF: {chance['chrf_signature']}.",
                f"R-1, R-2, R-L: ROUGE, {DEFINITIONS['rouge_1']}.",
                f"{chosen.skipped} pairs were skipped for a prompt too long for the window; {chosen.long_references} "
                "references are longer than what may be written.",
            ],
        )
        shown = [Sample(f"{e['label']}, after a prompt", text) for e in entries for text in e["texts"][: self.show]]
        scalars = {
            f"pairs/{slug(entry['key'])}/{name}": entry[name]
            for entry in entries
            for _, name, _ in COLUMNS
            if entry[name] is not None
        }
        return Section("Pairs", record, [table], samples=shown, scalars=scalars)
