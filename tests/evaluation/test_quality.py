"""Quality: figures of texts known by hand, degenerate texts flagged (E11), nothing without its setting (D18)."""

import math

import pytest

from celeris.errors import CelerisError
from celeris.evaluation.quality import Quality
from celeris.evaluation.quality_figures import EMPTY, LONG_RUN, LOW_DIVERSITY, LOW_ENTROPY, REPETITIVE

from .fakes import PROSE, FakeSampler, FakeScorer, MissingScorer, subject


def real_text(row: int, steps: int) -> str:
    return PROSE[(row * 37) % 200 :]


def test_real_text_as_samples_gets_the_figures_of_real_text_and_no_flag():
    section = Quality(FakeScorer(), [4, 8], num_samples=4, length=64)(subject(real_text))
    assert section.flags == []
    for setting in section.record["settings"]:
        assert setting["entropy_ratio"] == pytest.approx(1.0, abs=0.1)
        assert setting["gen_ppl"] == pytest.approx(math.e)
        assert setting["scorer_bits_per_character"] == pytest.approx(1 / math.log(2))
        assert setting["known_word_share"] == 1.0
    assert section.record["real_text"]["entropy"] > 2.0
    assert section.tables[0].rows[-1][0] == "real text"


def test_the_the_the_is_flagged_beside_its_fine_perplexity():
    """1,024 times "the ": a scorer is happy with it, the report is not."""
    about = subject(lambda row, steps: "the " * 1024)
    section = Quality(FakeScorer(), [4], num_samples=2, length=4096)(about)
    [setting] = section.record["settings"]
    assert setting["gen_ppl"] == pytest.approx(math.e)
    assert setting["entropy"] == pytest.approx(math.log(4), abs=1e-3)
    assert setting["rep_4"] > 0.99
    flags = " ".join(section.flags)
    assert LOW_ENTROPY in flags and LONG_RUN in flags and REPETITIVE in flags
    assert section.record["real_text"]["entropy"] > 2.0


def test_diversity_repetition_and_unknown_tokens_are_printed_beside_quality():
    """D15."""
    section = Quality(FakeScorer(), [4], num_samples=2, length=64)(subject(lambda row, steps: "the people\u00e9 of"))
    columns = [column for table in section.tables for column in table.columns]
    assert {"gen-PPL", "entropy", "dist-1", "dist-2", "rep-4", "run", "UNK"} <= set(columns)
    cells = dict(zip(section.tables[1].columns, section.tables[1].rows[0], strict=True))
    assert cells["UNK"] == "7.1%"  # one of 14 characters
    assert cells["word run"] == "1"


def test_samples_that_are_all_the_same_text_are_flagged():
    """Each row alone is prose; only together do they show that the sampler knows one sentence."""
    about = subject(lambda row, steps: PROSE[:64])
    section = Quality(FakeScorer(), [4], num_samples=7, length=64)(about)
    assert [flag.split()[0] for flag in section.flags] == [LOW_DIVERSITY]


def test_short_samples_are_compared_with_real_text_cut_to_their_length():
    """Entropy grows with length: 8 good tokens must not be flagged against rows of 64."""
    about = subject(lambda row, steps: real_text(row, steps)[:8])
    section = Quality(FakeScorer(), [4], num_samples=4, length=64)(about)
    [setting] = section.record["settings"]
    assert setting["mean_length"] == 8
    assert setting["real_entropy_same_length"] < 0.8 * section.record["real_text"]["entropy"]
    assert setting["entropy_ratio"] == pytest.approx(1.0, abs=0.15)


def test_empty_samples_are_counted_and_do_not_crash():
    about = subject(lambda row, steps: ["", " ", "a b"][row % 3])
    section = Quality(FakeScorer(), [1], num_samples=3, length=32)(about)
    [setting] = section.record["settings"]
    assert setting["empty"] == 2
    assert setting["skipped_by_scorer"] == 2 and setting["scored"] == 1
    assert any(flag.startswith(EMPTY) for flag in section.flags)
    nothing = Quality(FakeScorer(), [1], num_samples=2, length=32)(subject(lambda row, steps: ""))
    assert nothing.record["settings"][0]["gen_ppl"] is None
    assert nothing.record["settings"][0]["known_word_share"] is None


def test_without_a_scorer_the_other_figures_stand_and_the_reason_is_given():
    section = Quality(MissingScorer(), [4], num_samples=2, length=64)(subject(real_text))
    [setting] = section.record["settings"]
    assert setting["gen_ppl"] is None and setting["scorer"] is None
    assert setting["entropy"] > 2.0 and setting["known_word_share"] == 1.0
    assert section.unavailable == [
        "Generative perplexity is left out. The scorer's weights are missing: install the package `some-weights`."
    ]
    assert "quality_frontier" not in section.plots


def test_every_record_names_what_made_it():
    section = Quality(FakeScorer(), [4, 8], etas=[0.0, 0.5], num_samples=2, length=32)(subject(real_text))
    assert [(s["num_inference_steps"], s["eta"]) for s in section.record["settings"]] == [
        (4, 0.0), (4, 0.5), (8, 0.0), (8, 0.5),
    ]  # fmt: skip
    for setting in section.record["settings"]:
        for key in (
            *("weight_hash", "step", "precision", "device", "seed", "num_inference_steps", "eta", "temperature"),
            *("length", "block_length", "stagger", "solver", "num_samples", "scorer", "gen_ppl", "entropy"),
        ):
            assert setting[key] is not None, key
    assert section.record["definitions"]["gen_ppl"] == "one nat a character"
    assert {"entropy", "distinct_2", "rep_4", "known_word_share"} <= section.record["definitions"].keys()
    assert len(section.samples) == 8
    assert section.scalars["quality/steps_8_eta_0.5/entropy"] > 0


def test_rows_keep_their_seed_whatever_the_batch_size():
    seeds = []
    for batch_size in (2, 3, 64):
        about = subject(real_text)
        Quality(FakeScorer(), [4], num_samples=5, length=32, batch_size=batch_size)(about)
        assert isinstance(about.generate, FakeSampler)
        calls = about.generate.calls[1:]  # the first warms the clock up
        seeds.append([call["seed"] + k for call in calls for k in range(call["num_samples"])])
    assert seeds == [[5, 6, 7, 8, 9]] * 3


def test_the_scorer_reads_whole_samples_up_to_its_budget():
    scorer = FakeScorer()
    section = Quality(scorer, [4], num_samples=6, length=40, score_characters=100)(subject(real_text))
    assert section.record["settings"][0]["scored"] == 2
    assert section.record["real_text"]["scored"] == 2
    assert all(len(text) == 40 for text in scorer.read[1:])


@pytest.mark.parametrize("arguments", [{"num_samples": 0}, {"etas": []}, {"num_inference_steps": []}])
def test_nothing_to_do_is_refused(arguments: dict):
    with pytest.raises(CelerisError, match="at least"):
        Quality(FakeScorer(), **arguments)
