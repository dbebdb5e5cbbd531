"""Quality: figures of texts known by hand, degenerate texts flagged (E11), nothing without its setting (D18)."""

import math
from itertools import product

import pytest
from matplotlib.figure import Figure

from celeris.errors import CelerisError
from celeris.evaluation.matched_entropy import at_matched_entropy, matched_table
from celeris.evaluation.quality import Quality
from celeris.evaluation.quality_figures import EMPTY, LONG_RUN, LOW_DIVERSITY, LOW_ENTROPY, REPETITIVE
from celeris.sampling.solvers import DDIM, Heun

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
    solvers = {"one half": DDIM(0.5), "heun": Heun()}
    section = Quality(FakeScorer(), [4, 8], [0.5, 0.9], solvers, num_samples=2, length=32)(subject(real_text))
    assert [(s["num_inference_steps"], s["temperature"], s["solver"]) for s in section.record["settings"]] == list(
        product([4, 8], [0.5, 0.9], ["DDIM(eta=0.5)", "Heun()"])
    )
    for setting in section.record["settings"]:
        for key in (
            *("weight_hash", "step", "precision", "device", "seed", "num_inference_steps", "nfe_per_block"),
            *("solver_name", "solver", "temperature", "length", "block_length", "stagger", "num_samples"),
            *("label", "scorer", "gen_ppl", "entropy", "calls_per_token"),
        ):
            assert setting[key] is not None, key
    assert section.record["definitions"]["gen_ppl"] == "one nat a character"
    assert {"entropy", "distinct_2", "rep_4", "known_word_share"} <= section.record["definitions"].keys()
    assert len(section.samples) == 16
    assert section.scalars["quality/steps_8_one_half_t0.9/entropy"] > 0


def test_denoiser_calls_are_those_that_were_made():
    """Windows of 64 in blocks of 16: Heun's 4 steps are 7 calls a block, and half the text doubles a token's calls."""
    for text, share in ((PROSE, 1), (PROSE[:32], 2)):
        about = subject(lambda row, steps, text=text: text)
        solvers = {"heun": Heun(), "ddim": DDIM()}
        heun, ddim = Quality(FakeScorer(), [4], solvers=solvers, num_samples=3)(about).record["settings"]
        assert (heun["nfe_per_block"], ddim["nfe_per_block"]) == (7, 4)
        assert heun["calls_per_token"] == pytest.approx(share * 7 / 16)
        assert ddim["calls_per_token"] == pytest.approx(share * 4 / 16)


@pytest.mark.parametrize(
    ("arguments", "labels", "title"),
    [
        ({}, ["4 steps"], "4 steps, eta_1, T 0.7"),
        ({"temperatures": [0.5, 1]}, ["T 0.5", "T 1"], "4 steps, eta_1"),
        ({"solvers": {"a": DDIM(), "b": Heun()}}, ["a", "b (7 calls)"], "4 steps, T 0.7"),
        ({"num_inference_steps": [4, 1], "solvers": {"b": Heun()}}, ["4 steps (7 calls)", "1 steps"], "b, T 0.7"),
    ],
)
def test_a_label_names_what_varies_and_the_title_the_rest(arguments: dict, labels: list[str], title: str):
    arguments = {"num_inference_steps": [4], **arguments}
    section = Quality(FakeScorer(), num_samples=2, length=64, **arguments)(subject(real_text))
    assert [row[0] for row in section.tables[0].rows] == [*labels, "real text"]
    assert section.tables[0].title == f"Text quality: 64 tokens a row, 2 rows a setting, {title}"


def test_plots_have_a_line_a_solver_and_temperature():
    solvers = {"a": DDIM(), "b": Heun()}
    section = Quality(FakeScorer(), [8, 4], [0.5, 1], solvers, num_samples=2, length=64)(subject(real_text))
    axes = Figure().add_subplot()
    section.plots["quality_frontier"](axes)
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert set(lines) == {f"{name}, T {t}" for name, t in product("ab", ("0.5", "1"))}
    assert [text.get_text() for text in axes.texts] == ["4", "8"] * 2 + ["7", "15"] * 2
    axes = Figure().add_subplot()
    section.plots["quality_by_steps"](axes)
    [line] = [line for line in axes.get_lines() if line.get_label() == "b, T 0.5"]
    assert line.get_xdata().tolist() == [7, 15]


def setting(temperature: float, entropy: float, gen_ppl: float | None, steps: int = 4) -> dict:
    found = {"temperature": temperature, "entropy": entropy, "gen_ppl": gen_ppl, "num_inference_steps": steps}
    return {**found, "solver_name": "a", "real_entropy_same_length": 3.0}


def test_perplexity_at_matched_entropy_is_interpolated_and_never_extrapolated():
    """log PPL = 2·(entropy − real): one at real text's entropy, e^−0.2 a tenth of a nat below."""
    points = [(0.9, 3.2), (0.5, 2.2), (0.7, 2.95)]  # temperature, entropy
    settings = [setting(t, h, math.exp(2 * (h - 3.0))) for t, h in points]
    [found] = at_matched_entropy([*settings, setting(1.0, 3.0, None), setting(0.7, 2.9, 5.0, steps=8)])
    assert found["gen_ppl"] == {"0": pytest.approx(1.0), "0.1": pytest.approx(math.exp(-0.2))}
    assert (found["nearest_temperature"], found["nearest_excess"]) == (0.7, pytest.approx(-0.05))
    [found] = at_matched_entropy(settings[1:])  # neither reaches real text's
    assert found["gen_ppl"] == {"0": None, "0.1": pytest.approx(math.exp(-0.2))}
    assert matched_table([found]).rows == [["4 steps, a", "–", "0.8", "0.7", "-0.05"]]


def test_the_matched_table_is_there_when_temperatures_are_compared():
    def tables(*temperatures: float) -> list[str]:
        section = Quality(FakeScorer(), [4], temperatures, num_samples=2, length=64)(subject(real_text))
        return [table.title.split(":")[0] for table in section.tables]

    assert tables(0.5, 0.7)[2:] == ["Generative perplexity at real text's entropy"]
    assert len(tables(0.7)) == 2


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


@pytest.mark.parametrize(
    "arguments", [{"num_samples": 0}, {"temperatures": []}, {"solvers": {}}, {"num_inference_steps": []}]
)
def test_nothing_to_do_is_refused(arguments: dict):
    with pytest.raises(CelerisError, match="at least"):
        Quality(FakeScorer(), **arguments)


def test_names_that_would_share_a_logger_key_are_refused():
    with pytest.raises(CelerisError, match="must differ in letters or digits, unlike a b, a-b"):
        Quality(FakeScorer(), solvers={"a b": DDIM(), "a-b": Heun()})
