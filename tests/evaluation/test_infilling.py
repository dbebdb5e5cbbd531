"""Infilling against a filler that knows the answers, one that does not read, and a judge that counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from celeris.baselines import Llama
from celeris.errors import CelerisError
from celeris.evaluation.infilling import Infilling, filler, share_lower
from celeris.evaluation.judge import LlamaJudge
from celeris.evaluation.masks import Mask, kept, random_masks, template_of, touched_words, with_filling
from celeris.evaluation.record import Section, Subject
from celeris.evaluation.scorer import ScoredTexts
from celeris.evaluation.store import Store
from celeris.evaluation.text_metrics import WordVocabulary
from celeris.evaluation.units import NegativeLogLikelihood
from celeris.sampling import Blank
from tests.evaluation.fakes import FakeData, FakeModel, MissingScorer, character_tokenizer

WORDS = ["peace", "union", "navy", "treasury", "congress", "public", "treaty", "labor", "nation", "report"]
SENTENCES = [
    f"The {WORDS[k % 10]} of the {WORDS[k * 7 % 10]} is {WORDS[k * 3 % 10]} now and then {k}." for k in range(40)
]
TOKENIZER = character_tokenizer("".join(sorted(set("".join(SENTENCES)))))
PROSE = "\n\n".join(SENTENCES)


@dataclass
class Out:
    sequences: list[list[int]]
    filled: list[list[list[int]]]


class Filler(FakeModel):
    """`fill(given text around, length)` writes each blank."""

    max_length = 128

    def __init__(self, fill: Any, surplus: int = 0):
        super().__init__(TOKENIZER)
        self.fill, self.calls = fill, []
        self.info = {"data_spec": {"layout": {"surplus": surplus}}}

    def __call__(self, model: Any, templates: Sequence[Any], **more: Any) -> Out:
        self.calls.append((templates, more))
        out = Out([], [])
        for template in templates:
            parts: list[str] = []
            filled = []
            for n, item in enumerate(template):
                if isinstance(item, Blank):
                    after = template[n + 1] if n + 1 < len(template) else []
                    rest = "" if isinstance(after, Blank) else TOKENIZER.decode(after)
                    filled.append(TOKENIZER.encode(self.fill("".join(parts), rest, item)))
                    parts.append(TOKENIZER.decode(filled[-1]))
                else:
                    parts.append(TOKENIZER.decode(item))
            out.sequences.append(TOKENIZER.encode("".join(parts)))
            out.filled.append(filled)
        return out


@filler.register
def _(model: Filler) -> Any:
    return model


class Judge:
    """A nat for every character that is not as in the held-out sentence that is nearest."""

    name = definition = "counts wrong characters"

    def __init__(self) -> None:
        self.scoring: dict[str, Any] = {"scorer": self.name}

    def tokenize(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def score(self, texts: Sequence[str]) -> ScoredTexts:
        def loss(text: str) -> float:
            same = [s for s in SENTENCES if len(s) == len(text)] or ["?" * len(text)]
            return float(min(sum(a != b for a, b in zip(s, text, strict=True)) for s in same))

        records: list[NegativeLogLikelihood | None] = [
            NegativeLogLikelihood(loss(t), len(t), len(t), len(t)) for t in texts
        ]
        return ScoredTexts(records, [self.tokenize(t) for t in texts])


def truth(before: str, after: str, blank: Blank) -> str:
    """What stood there, by what is given around it."""
    for sentence in SENTENCES:
        if sentence.startswith(before):
            rest = sentence[len(before) :]
            if after and rest[blank.shortest :].startswith(after):
                return rest[: blank.shortest]
    return "a" * blank.shortest


def measured(model: Filler, store: Store | None = None, scorer: Any = None, **options: Any) -> Section:
    data = FakeData(TOKENIZER, train_documents=[PROSE], val_documents=[PROSE])
    metric = Infilling(scorer or Judge(), **{"num_samples": 30, "longest": 60, "batch_size": 7, **options})
    return metric(Subject(model, data, TOKENIZER, 3, False, store or Store()))


def test_one_that_knows_is_better_than_the_filling_of_another() -> None:
    model = Filler(truth)
    section = measured(model)
    record = section.record
    assert record["masks"] == 30 and record["true"]["nats_per_sentence"] == 0 and record["true"]["known_words"] == 1
    for entry in record["settings"]:
        assert entry["given_kept"] == entry["given_kept_in_other_sentences"] == 30
        assert entry["share_lower"] > 0.9 and entry["share_true_lower"] >= entry["share_lower"]
        assert entry["nats_per_sentence"] < 1 < entry["nats_per_sentence_with_another_filling"]
        assert entry["known_words"] > 0.95 > entry["known_words_with_another_filling"]
    assert [e["num_inference_steps"] for e in record["settings"]] == [4, 16] and not record["lengths"]
    assert "120/120" in section.headline[0] and len(section.tables) == 1 and len(section.samples) == 8
    seeds = [more["seed"] for _, more in model.calls[:10]]  # 30 rows by 7, then the other sentences
    assert seeds == [3, 10, 17, 24, 31, 33, 40, 47, 54, 61]


def test_one_that_always_writes_the_same_is_never_better() -> None:
    section = measured(Filler(lambda before, after, blank: "a" * blank.shortest))
    assert {entry["share_lower"] for entry in section.record["settings"]} == {0.0}
    assert section.record["settings"][0]["given_kept"] == 30


def test_a_filler_that_changes_what_is_given_is_caught() -> None:
    class Careless(Filler):
        def __call__(self, model: Any, templates: Sequence[Any], **more: Any) -> Out:
            out = super().__call__(model, templates, **more)
            out.sequences[0][-1] = TOKENIZER.encode("z" if "z" in PROSE else "a")[0]
            return out

    section = measured(Careless(truth), batch_size=30, num_inference_steps=[4])
    assert section.record["settings"][0]["given_kept"] == 29 and "58/60" in section.headline[0]


def test_lengths_are_measured_where_they_are_chosen() -> None:
    """It writes two tokens fewer than it may, of blanks that are 8 too long."""
    model = Filler(lambda before, after, blank: "a" * (blank.most - (0 if blank.longest is None else 2)), surplus=4)
    section = measured(model, num_inference_steps=[4])
    (found,) = section.record["lengths"]
    assert found["length_mean_error"] == found["length_mean_absolute_error"] == 6 and found["given_kept"] == 30
    assert found["length_exact"] == found["never_ended"] == 0 and len(section.tables) == 2
    assert not measured(model, num_inference_steps=[4], surplus=0).record["lengths"]


def test_fillings_are_kept(tmp_path: Path) -> None:
    model = Filler(truth)
    first = measured(model, Store(tmp_path)).record
    calls = len(model.calls)
    assert measured(model, Store(tmp_path)).record == first and len(model.calls) == calls
    measured(model, Store(tmp_path), temperatures=[0.5])
    assert len(model.calls) == 2 * calls


def test_what_cannot_be_measured_is_left_out() -> None:
    assert measured(FakeModel(TOKENIZER)).unavailable  # type: ignore[arg-type]
    assert "some-weights" in measured(Filler(truth), scorer=MissingScorer()).unavailable[0]
    assert measured(Filler(truth), longest=20).unavailable
    for wrong in ({"num_samples": 1}, {"blanks": 0}, {"blank_length": [3, 2]}, {"temperatures": []}):
        with pytest.raises(CelerisError):
            Infilling(Judge(), **wrong)


def test_masks_are_random_and_pairs_have_equal_blanks() -> None:
    masks, others = random_masks([PROSE], TOKENIZER, 40, 3, (2, 9), 60, 128, seed=1)
    assert len({tuple(mask.ids) for mask in masks}) == len(masks) == 40
    for mask, other in zip(masks, others, strict=True):
        assert mask.ids != other.ids
        sizes = [[end - begin for begin, end in m.spans] for m in (mask, other)]
        assert sizes[0] == sizes[1] and all(2 <= n <= 9 for n in sizes[0]) and 1 <= len(sizes[0]) <= 3
        for m in (mask, other):
            assert m.spans[-1][1] < len(m.ids), "something is given behind the last blank"
            assert all(a[1] <= b[0] for a, b in zip(m.spans, m.spans[1:], strict=False))
            assert with_filling(m, [m.ids[begin:end] for begin, end in m.spans]) == m.ids
    assert len({len(mask.spans) for mask in masks}) == 3 and len({mask.spans[0] for mask in masks}) > 30
    again, _ = random_masks([PROSE], TOKENIZER, 40, 3, (2, 9), 60, 128, seed=1)
    other_seed, _ = random_masks([PROSE], TOKENIZER, 40, 3, (2, 9), 60, 128, seed=2)
    assert again == masks != other_seed


def test_templates_and_words() -> None:
    ids = TOKENIZER.encode("The peace now")
    mask = Mask(ids, [(0, 2), (6, 10)])
    assert template_of(mask) == [Blank(2), ids[2:6], Blank(4), ids[10:]]
    assert template_of(mask, 3) == [Blank(1, 5), ids[2:6], Blank(1, 7), ids[10:]]
    filling = [TOKENIZER.encode("t"), TOKENIZER.encode("ublic")]
    assert TOKENIZER.decode(with_filling(mask, filling)) == "te peublicnow"
    assert kept(mask, with_filling(mask, filling), filling) and not kept(mask, ids, filling)
    words = WordVocabulary(["the peace now"])
    decode = TOKENIZER.decode
    assert touched_words(words, decode, [mask], [[ids[0:2], ids[6:10]]]) == 1.0
    assert touched_words(words, decode, [mask], [filling]) == 0.0  # "te" and "peublicnow"
    assert touched_words(words, decode, [Mask(ids, [(3, 4)])], [[TOKENIZER.encode(" ")]]) == 1.0
    assert share_lower([1.0, 2.0], [1.0, 3.0]) == 0.5


def test_the_judge_is_the_likelihood_of_the_baseline(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    spec = {"_target_": "celeris.baselines.Llama", "vocab_size": TOKENIZER.vocab_size, "max_length": 64, "width": 16,
            "depth": 1, "heads": 2, "mlp_width": 32, "unk_id": 2}  # fmt: skip
    model = Llama.from_spec(spec)
    model.tokenizer = TOKENIZER
    model.save_pretrained(tmp_path / "export", {"step": 1})
    judge = LlamaJudge(tmp_path)
    assert "model" not in vars(judge), "nothing is read yet"
    texts = [SENTENCES[0], "", SENTENCES[3][:11]]
    scored = judge.score(texts)
    for text, nll in zip(texts, scored.per_text, strict=True):
        if not text:
            assert nll is None
            continue
        ids = torch.tensor([TOKENIZER.encode(text)])
        log_p = torch.log_softmax(model.eval().logits(ids), -1)
        wanted = -float(log_p.detach().gather(-1, ids[..., None]).double().sum())
        assert nll is not None and nll.nats == pytest.approx(wanted, rel=1e-5) and nll.characters == len(text)
    assert judge.scoring["weights"] == model.weight_hash and judge.tokenize("The") == TOKENIZER.encode("The")
    with pytest.raises(CelerisError, match="window 64"):
        judge.score(["a" * 65])
    assert isinstance(Infilling(Judge(), judge=str(tmp_path)).judge, LlamaJudge)
