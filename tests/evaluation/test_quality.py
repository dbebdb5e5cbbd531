"""Quality: figures of texts known by hand, degenerate texts flagged (E11), nothing without its setting (D18)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from matplotlib.figure import Figure

from celeris.errors import CelerisError
from celeris.evaluation import bench
from celeris.evaluation.matched_entropy import at_matched_entropy, matched_table
from celeris.evaluation.quality import Quality
from celeris.evaluation.quality_figures import COPIED, EMPTY, LONG_RUN, LOW_DIVERSITY, LOW_ENTROPY, REPETITIVE
from celeris.evaluation.quality_tables import short_labels
from celeris.evaluation.scorer import ScoredTexts
from celeris.sampling.solvers import DDIM, Heun

from .fakes import PROSE, FakeScorer, MissingScorer, subject

OTHER_PROSE = (
    "It is a happy duty to report that our harbors were dredged, that the mails travel faster than before, and that "
    "each territory has asked for schools.\n"
) * 2


class Happy(FakeScorer):
    """Loves every text: a hundredth of a nat a character."""

    def score(self, texts: Sequence[str]) -> ScoredTexts:
        scores = super().score(texts)
        loved = [None if nll is None else type(nll)(nll.nats / 100, *_sizes(nll)) for nll in scores.per_text]
        return ScoredTexts(loved, scores.sequences)


def _sizes(nll: Any) -> tuple[int, int, int]:
    return nll.tokens, nll.characters, nll.bytes


@dataclass
class Found:
    mean: float | None
    sd: float | None
    samples: int
    warning: str | None = None


class FakeMauve:
    """The share of texts that are among the reference's, and what it was asked."""

    name, definition = "fake closeness", "share of texts that are real"

    def __init__(self, least: int = 1):
        self.asked: list[tuple[list[str], list[str]]] = []
        self.least = least

    def __call__(self, texts: Sequence[str], reference_texts: Sequence[str]) -> Found:
        self.asked.append((list(texts), list(reference_texts)))
        if len(texts) < self.least:
            return Found(None, None, len(texts), f"{len(texts)} texts are too few.")
        return Found(sum(text in reference_texts for text in texts) / len(texts), 0.5, len(texts))


def quality(steps: Sequence[int] = (4,), scorer: Any = None, **arguments: Any) -> Quality:
    return Quality(FakeScorer() if scorer is None else scorer, num_inference_steps=steps, **arguments)


def real_text(row: int, steps: int) -> str:
    return PROSE[(row * 37) % 200 :]


def names(flags: Sequence[str]) -> list[str]:
    return [flag.split()[0] for flag in flags]


def test_real_text_as_samples_gets_the_figures_of_real_text_and_no_flag():
    section = quality([4, 8], num_samples=4, length=64)(subject(real_text))
    assert section.flags == []
    for setting in section.record["settings"]:
        assert setting["entropy_ratio"] == pytest.approx(1.0, abs=0.1)
        assert setting["gen_ppl"] == setting["gen_ppl_mean_of_texts"] == pytest.approx(math.e)
        assert setting["scorer_bits_per_character"] == pytest.approx(1 / math.log(2))
        assert setting["known_word_share"] == 1.0
        assert setting["copied_longest"] == 64  # the training text is the same
    assert section.record["real_text"]["entropy"] > 2.0
    assert all(table.rows[-1][0] == "real text" for table in section.tables)


def test_constant_text_is_flagged_however_much_its_scorer_likes_it():
    """1,024 times "the ": a perplexity of 1.01, and the report says that it means nothing."""
    about = subject(lambda row, steps: "the " * 1024)
    section = quality(scorer=Happy(), num_samples=2, length=4096)(about)
    [setting] = section.record["settings"]
    assert setting["gen_ppl"] == pytest.approx(math.exp(0.01))
    assert setting["entropy"] == pytest.approx(math.log(4), abs=1e-3)
    assert setting["rep_4"] > 0.99
    assert {LOW_ENTROPY, LONG_RUN, REPETITIVE} <= set(names(section.flags))
    assert section.record["real_text"]["entropy"] > 2.0


def test_copies_of_the_training_text_are_flagged_and_held_out_text_is_not():
    def flags(write: Any) -> list[str]:
        section = quality(num_samples=3, length=64)(subject(write, val_documents=[OTHER_PROSE]))
        assert section.record["real_text"]["copied_longest"] < 16
        return [flag for flag in names(section.flags) if flag == COPIED]

    assert flags(real_text) == [COPIED]
    assert flags(lambda row, steps: OTHER_PROSE[row:]) == []


def test_diversity_repetition_and_unknown_tokens_are_printed_beside_quality():
    """D15."""
    section = quality(num_samples=2, length=64)(subject(lambda row, steps: "the people\u00e9 of"))
    columns = [column for table in section.tables for column in table.columns]
    assert {"gen-PPL", "entropy", "dist-1", "dist-2", "rep-4", "run", "UNK", "sBLEU", "copied"} <= set(columns)
    cells = dict(zip(section.tables[1].columns, section.tables[1].rows[0], strict=True))
    assert cells["UNK"] == "7.1%"  # one of 14 characters
    assert cells["word run"] == "1"
    assert cells["sBLEU"] == "100.0"


def test_samples_that_are_all_the_same_text_are_flagged():
    """Each row alone is prose; only together do they show that the sampler knows one sentence."""
    section = quality(num_samples=7, length=64)(subject(lambda row, steps: PROSE[:64]))
    assert names(section.flags) == [LOW_DIVERSITY]
    assert section.record["settings"][0]["self_bleu_4"] > 3 * section.record["real_text"]["self_bleu_4"]


def test_short_samples_are_compared_with_real_text_cut_to_their_length():
    """Entropy grows with length: 8 good tokens must not be flagged against rows of 64."""
    section = quality(num_samples=4, length=64)(subject(lambda row, steps: real_text(row, steps)[:8]))
    [setting] = section.record["settings"]
    assert setting["mean_length"] == 8
    assert setting["real_entropy_same_length"] < 0.8 * section.record["real_text"]["entropy"]
    assert setting["entropy_ratio"] == pytest.approx(1.0, abs=0.15)


def test_empty_samples_are_counted_and_do_not_crash():
    section = quality([1], num_samples=3, length=32)(subject(lambda row, steps: ["", " ", "a b"][row % 3]))
    [setting] = section.record["settings"]
    assert setting["empty"] == 2
    assert setting["texts_skipped"] == 2 and setting["texts_scored"] == 1
    assert EMPTY in names(section.flags)
    [nothing] = quality([1], num_samples=2, length=32)(subject(lambda row, steps: "")).record["settings"]
    for figure in ("gen_ppl", "gen_ppl_mean_of_texts", "known_word_share", "self_bleu_4", "calls_per_token"):
        assert nothing[figure] is None, figure
    assert nothing["tokens_per_forward"] == 0.0


def test_without_a_scorer_the_other_figures_stand_and_the_reason_is_given():
    section = quality(scorer=MissingScorer(), num_samples=2, length=64)(subject(real_text))
    [setting] = section.record["settings"]
    assert setting["gen_ppl"] is None and setting["scorer"] is None
    assert setting["entropy"] > 2.0 and setting["known_word_share"] == 1.0
    assert section.unavailable == [
        "Generative perplexity is left out. The scorer's weights are missing: install the package `some-weights`."
    ]
    assert section.record["scoring"]["scorer"] is None
    assert "quality_frontier" not in section.plots


def test_no_scorer_is_a_choice():
    section = Quality(None, num_inference_steps=[4], num_samples=2, length=64)(subject(real_text))
    assert section.record["settings"][0]["gen_ppl"] is None and section.unavailable == []


def test_a_missing_package_leaves_its_figure_out_and_no_other(monkeypatch: pytest.MonkeyPatch):
    def missing(*args: Any, **kwargs: Any) -> None:
        raise CelerisError("It needs `some-package`; run `make install`.")

    mauve = FakeMauve()
    monkeypatch.setattr(FakeMauve, "__call__", missing)
    monkeypatch.setattr(bench, "self_bleu", missing)
    monkeypatch.setattr(bench.Memorisation, "longest", missing)
    section = quality([4, 8], mauve=mauve, num_samples=2, length=64)(subject(real_text))
    for setting in [*section.record["settings"], section.record["real_text"]]:
        assert [setting[key] for key in ("self_bleu_4", "copied_longest", "copied_mean", "mauve")] == [None] * 4
        assert setting["gen_ppl"] == pytest.approx(math.e)
    assert len(section.unavailable) == 3 and all("some-package" in reason for reason in section.unavailable)
    assert section.flags == []


def test_every_record_names_what_made_it():
    solvers = {"one half": DDIM(0.5), "heun": Heun()}
    about = subject(real_text, next_token=True)
    section = quality([4, 8], temperatures=[0.5, 0.9], solvers=solvers, num_samples=2, length=32)(about)
    settings = section.record["settings"]
    assert [(s["temperature"], s["solver"], s["num_inference_steps"]) for s in settings[:-1]] == list(
        product([0.5, 0.9], ["DDIM(eta=0.5)", "Heun()"], [4, 8])
    )
    for setting in settings[:-1]:
        for key in (
            *("key", "label", "system", "weight_hash", "step", "precision", "device", "seed", "seeds"),
            *("num_inference_steps", "solver_name", "solver", "temperature", "stagger", "block_length"),
            *("length", "num_samples", "scorer", "gen_ppl", "entropy", "calls_per_token", "forwards"),
        ):
            assert setting[key] is not None, key
    assert settings[-1]["key"] == "fake/next_token/t1" and settings[-1]["decoder"] == "autoregressive"
    assert len({setting["key"] for setting in settings}) == 9
    definitions = section.record["definitions"]
    assert definitions["gen_ppl"] == "one nat a character"
    figures = {"entropy", "distinct_3", "self_bleu_4", "copied_longest", "gen_ppl_mean_of_texts", "tokens_cut"}
    assert figures | {"forwards", "calls_per_token", "tokens_per_forward"} <= definitions.keys()
    assert section.record["scoring"] == {
        **{"scorer": "fake scorer", "window": 8, "length": 32, "num_samples": 2, "score_characters": 6_000},
        **{"mauve": None, "real_text": "f00d"},
    }
    assert len(section.samples) == 18
    assert section.scalars["quality/fake_steps_8_one_half_t0.9/entropy"] > 0


def test_passes_through_the_model_are_those_that_were_made():
    """Windows of 64 in 4 blocks: Heun's 4 steps are 7 calls a block, and half the text doubles a token's calls."""
    for text, share in ((PROSE, 1), (PROSE[:32], 2)):
        about = subject(lambda row, steps, text=text: text, next_token=True)
        settings = quality(solvers={"heun": Heun(), "ddim": DDIM()}, num_samples=3)(about).record["settings"]
        heun, ddim, next_token = settings
        assert heun["calls_per_token"] == pytest.approx(share * 7 / 16)
        assert ddim["calls_per_token"] == pytest.approx(share * 4 / 16)
        assert next_token["calls_per_token"] is None  # no denoiser
        assert [s["forwards"] for s in settings] == [3 * 4 * 8, 3 * 4 * 5, 3 * 64]
        assert ddim["tokens_per_forward"] == pytest.approx(64 / share / 20)


def test_mauve_is_of_all_texts_and_real_text_is_held_against_other_real_text():
    mauve = FakeMauve()
    section = quality(mauve=mauve, num_samples=3, length=32)(
        subject(lambda row, steps: PROSE if row == 5 else "the ships")
    )
    [setting] = section.record["settings"]
    (first, others), (samples, reference) = mauve.asked
    assert first == reference and len(samples) == 3  # real text is measured first
    assert others and not set(others) & set(reference)
    assert (setting["mauve"], setting["mauve_sd"], setting["mauve_samples"]) == (pytest.approx(1 / 3), 0.5, 3)
    assert section.record["real_text"]["mauve"] == 0.0
    assert section.record["scoring"]["mauve"] == "fake closeness"
    assert names(section.flags)[-1] == "FEW-SAMPLES:" and "1,000" in section.flags[-1]
    assert section.tables[0].rows[0][-1] == "0.33±0.50"


def test_a_mauve_that_is_undefined_is_left_out_with_its_reason():
    section = quality(mauve=FakeMauve(least=9), num_samples=3, length=32)(subject(real_text))
    assert section.record["settings"][0]["mauve"] is None
    assert section.unavailable == ["3 texts are too few."] and section.flags == []


def test_short_labels_leave_out_what_all_share():
    labels = ["celeris, 4 steps, heun, T 0.7", "celeris, 8 steps, heun, T 0.7"]
    assert short_labels(labels) == (["4 steps", "8 steps"], ["celeris", "heun", "T 0.7"])
    assert short_labels([*labels, "celeris, next token, T 1"])[0][2] == "next token, T 1"
    assert short_labels(labels[:1]) == (["4 steps, heun, T 0.7"], ["celeris"])
    assert short_labels(["llama"]) == (["llama"], ["llama"])


def test_the_scorers_budget_and_what_it_left_out_are_printed():
    scorer = FakeScorer()
    section = quality(scorer=scorer, num_samples=6, length=40, score_characters=100)(subject(real_text))
    [setting] = section.record["settings"]
    assert (setting["texts_scored"], setting["tokens_scored"], setting["tokens_cut"]) == (2, 80, 160)
    assert section.record["real_text"]["texts_scored"] == 2
    assert all(len(text) == 40 for text in scorer.read)
    assert "80 tokens of 2 texts a setting scored, 0 texts without a word skipped" in section.tables[0].notes[0]


def test_plots_have_a_colour_a_solver_and_a_marker_a_temperature():
    solvers = {"a": DDIM(), "b": Heun()}
    about = subject(real_text, next_token=True)
    section = quality([8, 4], temperatures=[0.5, 1], solvers=solvers, num_samples=2, length=64)(about)
    for name in ("quality_frontier", "quality_by_steps"):
        axes = Figure().add_subplot()
        section.plots[name](axes)
        legend = {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}
        assert set(legend) == {"fake, a", "fake, b", "fake, next token", "T 0.5", "T 1"}
        assert len({legend[label].get_color() for label in ("fake, a", "fake, b", "fake, next token")}) == 3
        assert legend["T 0.5"].get_marker() != legend["T 1"].get_marker()
    axes = Figure().add_subplot()
    section.plots["quality_frontier"](axes)
    assert [text.get_text() for text in axes.texts] == ["8", "4"] * 2
    assert [points.get_label() for points in axes.collections] == ["real text"]
    curves = [line for line in axes.get_lines() if len(line.get_xdata()) == 2]
    assert len(curves) == 4  # each decoder of diffusion over its two temperatures


def setting(temperature: float, entropy: float, gen_ppl: float | None, steps: int = 4) -> dict:
    found = {"temperature": temperature, "entropy": entropy, "gen_ppl": gen_ppl}
    names = {"key": f"x/steps_{steps}/a/t{temperature:g}", "label": f"x, {steps} steps, a, T {temperature:g}"}
    return {**found, **names, "real_entropy_same_length": 3.0}


def test_perplexity_at_matched_entropy_is_interpolated_and_never_extrapolated():
    """log PPL = 2·(entropy − real): one at real text's entropy, e^−0.2 a tenth of a nat below."""
    points = [(0.9, 3.2), (0.5, 2.2), (0.7, 2.95)]  # temperature, entropy
    settings = [setting(t, h, math.exp(2 * (h - 3.0))) for t, h in points]
    [found] = at_matched_entropy([*settings, setting(1.0, 3.0, None), setting(0.7, 2.9, 5.0, steps=8)])
    assert found["gen_ppl"] == {"0": pytest.approx(1.0), "0.1": pytest.approx(math.exp(-0.2))}
    assert (found["nearest_temperature"], found["nearest_excess"]) == (0.7, pytest.approx(-0.05))
    [found] = at_matched_entropy(settings[1:])  # neither reaches real text's
    assert found["gen_ppl"] == {"0": None, "0.1": pytest.approx(math.exp(-0.2))}
    assert matched_table([found]).rows == [["x, 4 steps, a", "–", "0.8", "0.7", "-0.05"]]


def test_the_matched_table_is_there_when_temperatures_are_compared():
    def tables(*temperatures: float) -> list[str]:
        section = quality(temperatures=temperatures, num_samples=2, length=64)(subject(real_text))
        return [table.title.split(":")[0] for table in section.tables]

    assert tables(0.5, 0.7)[3:] == ["Generative perplexity at real text's entropy"]
    assert len(tables(0.7)) == 3


def test_rows_keep_their_seed_whatever_the_batch_size():
    seeds = []
    for batch_size in (2, 3, 64):
        about = subject(real_text)
        quality(num_samples=5, length=32, batch_size=batch_size)(about)
        calls = about.model.sampler.calls[1:]  # the first warms the clock up
        seeds.append([call["seed"] + k for call in calls for k in range(call["num_samples"])])
    assert seeds == [[5, 6, 7, 8, 9]] * 3


@pytest.mark.parametrize(
    "arguments", [{"num_samples": 0}, {"batch_size": 0}, {"temperatures": []}, {"solvers": {}}, {"steps": []}]
)
def test_nothing_to_do_is_refused(arguments: dict):
    with pytest.raises(CelerisError, match=r"[Aa]t least"):
        quality(**arguments)


def test_names_that_would_share_a_logger_key_are_refused():
    with pytest.raises(CelerisError, match="must differ in letters or digits, unlike a b, a-b"):
        quality(solvers={"a b": DDIM(), "a-b": Heun()})
