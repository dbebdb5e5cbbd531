"""One line a checkpoint version: what is remembered, what may be compared, and what counts as worse."""

import copy
import json
import math
import random
from pathlib import Path

import pytest

from celeris.errors import CelerisError
from celeris.evaluation import history
from celeris.evaluation.history_figures import choices_of, groups_of

KEY = "celeris/steps_4/eta_1/t0.7"


def report(**changes) -> dict:
    """A report of one decoder, as `Report.to_dict` gives it."""
    entry = {
        "key": KEY, "num_inference_steps": 4, "solver_name": "eta_1", "temperature": 0.7, "length": 256,
        "num_samples": 64, "gen_ppl": 40.0, "gen_ppl_standard_error": 2.0, "scorer_bits_per_character": 2.0,
        "scorer_bits_per_character_standard_error": 0.05, "entropy": 2.7, "entropy_sd": 0.16, "entropy_ratio": 0.9,
        "known_word_share": 0.8, "known_word_share_standard_error": None, "texts_scored": 20,
        "texts": ["no one two three x", "or four five no"] * 50,
    }  # fmt: skip
    entry.update({key: value for key, value in changes.items() if key in entry})
    likelihood = {"nats_per_token": 1.2, "bits_per_character": 1.7, "tokens": 100, "kind": "upper bound",
                  "standard_error_bits_per_character": 0.01}  # fmt: skip
    speed = {"key": KEY, "batch": 1, "prompt_length": 0, "length": 256, "output_tokens_per_second_sd": 10.0,
             "seconds": [1.0, 1.1, 0.9]}  # fmt: skip
    return {
        "checkpoint": {"device": "cpu", "precision": "float32"},
        "environment": {"threads": changes.get("threads", 2), "platform": "Linux x86_64"},
        "metrics": {
            "likelihood": {"headline": "bound", "rows": 256, "row_length": 256, "results": {"bound": likelihood}},
            "quality": {
                "scoring": {"scorer": changes.get("scorer", "S"), "score_characters": 6000, "real_text": "f"},
                "settings": [entry],
            },
            "speed": {"settings": [{**speed, "output_tokens_per_second": changes.get("rate", 100.0)}]},
        },
    }


def line(weights: str = "aaa", seed: int = 7, data: str = "text", **changes) -> history.Line:
    return history.measured(
        groups_of(report(**changes)), date="2026-01-02T03:04:05+00:00", system="celeris", experiment="tiny", step=10,
        weight_hash=weights, data={"fingerprint": data}, seed=seed,
    )  # fmt: skip


def verdicts(changes: list[history.Change]) -> dict[str, str]:
    return {change.name: change.verdict for change in changes}


def test_a_line_has_every_figure_with_its_noise_and_direction() -> None:
    groups = line()["groups"]
    speed = f"speed {KEY} (batch 1, prompt 0, length 256)"
    assert set(groups) == {"likelihood bound", f"quality {KEY}", f"scored {KEY}", speed}
    figures = {**groups[f"quality {KEY}"]["figures"], **groups[f"scored {KEY}"]["figures"]}
    assert {name: figure["better"] for name, figure in figures.items()} == {
        "gen_ppl": "lower", "scorer_bits_per_character": "lower", "entropy_ratio": "nearer 1",
        "known_word_share": "higher",
    }  # fmt: skip
    assert figures["entropy_ratio"]["error"] == pytest.approx(0.16 / 8 * 0.9 / 2.7)
    # 5 words of two letters or more that do not touch an end in every pair of texts: "one two three", "four five".
    assert "250 words" in figures["known_word_share"]["noise"]
    assert figures["known_word_share"]["error"] == pytest.approx(math.sqrt(0.8 * 0.2 / 250), rel=0.02)
    assert "20 scored texts" in figures["gen_ppl"]["noise"]
    rate = groups[speed]["figures"]["tokens_per_second"]
    assert rate["error"] == pytest.approx(10) and rate["better"] == "higher"
    json.dumps(groups, allow_nan=False)


def test_the_error_of_the_known_words_is_their_spread_over_repeated_draws() -> None:
    rng = random.Random(0)
    draws = [sum(rng.random() < 0.8 for _ in range(250)) / 250 for _ in range(2000)]
    spread = math.sqrt(sum((x - 0.8) ** 2 for x in draws) / len(draws))
    error = line()["groups"][f"quality {KEY}"]["figures"]["known_word_share"]["error"]
    assert error == pytest.approx(spread, rel=0.1)


def test_words_of_one_text_are_not_taken_as_independent_where_the_record_says_how_texts_differ() -> None:
    figure = line(known_word_share_standard_error=0.1)["groups"][f"quality {KEY}"]["figures"]["known_word_share"]
    assert figure["error"] == 0.1
    perfect = line(known_word_share=1.0, known_word_share_standard_error=0.0)["groups"][f"quality {KEY}"]["figures"]
    assert 0.004 < perfect["known_word_share"]["error"] < 0.01  # all of 250 words known is no proof of 100 %


def test_a_change_within_noise_is_none_and_one_beyond_it_is_named_with_both_figures_and_z() -> None:
    stored = line()
    assert set(verdicts(history.compare(line("bbb"), [stored])).values()) == {"within noise"}
    assert verdicts(history.compare(line("bbb", gen_ppl=48.0), [stored]))["gen_ppl"] == "within noise"  # z = 2.8
    changes = history.compare(line("bbb", gen_ppl=49.0), [stored])  # z = 9/√8 = 3.2
    assert verdicts(changes)["gen_ppl"] == "WORSE"
    (sentence,) = history.regressions(changes)
    assert all(word in sentence for word in ("49.000", "40.000", "z = 3.2", KEY, "lower is better", "tiny step 10 aaa"))
    assert verdicts(history.compare(line("bbb", gen_ppl=31.0), [stored]))["gen_ppl"] == "better"
    assert verdicts(history.compare(line("bbb", known_word_share=0.6), [stored]))["known_word_share"] == "WORSE"
    assert verdicts(history.compare(line("bbb", known_word_share=0.99), [stored]))["known_word_share"] == "better"


@pytest.mark.parametrize(("ratio", "verdict"), [(0.5, "WORSE"), (1.5, "WORSE"), (1.0, "better"), (1.1, "within noise")])
def test_an_entropy_is_worse_the_further_it_is_from_that_of_real_text(ratio: float, verdict: str) -> None:
    changes = history.compare(line("bbb", entropy_ratio=ratio, entropy=3 * ratio), [line()])
    assert verdicts(changes)["entropy_ratio"] == verdict


def test_text_of_one_token_and_no_text_at_all_are_worse() -> None:
    changes = history.compare(line("bbb", entropy_ratio=0.0, entropy=0.0, entropy_sd=0.0), [line()])
    assert verdicts(changes)["entropy_ratio"] == "WORSE"


def test_an_unknown_noise_gives_no_verdict_unless_nothing_changed() -> None:
    stored = line(gen_ppl_standard_error=None)
    assert verdicts(history.compare(line("bbb", gen_ppl=400.0), [stored]))["gen_ppl"] == "noise unknown"
    assert verdicts(history.compare(line("bbb", gen_ppl_standard_error=None), [stored]))["gen_ppl"] == "within noise"


def test_the_newest_line_of_the_same_scoring_and_data_is_compared_with() -> None:
    old, other_scorer, other_data = line("aaa"), line("bbb", scorer="T"), line("ccc", data="other")
    changes = history.compare(line("ddd", gen_ppl=60.0), [old, other_scorer, other_data])
    assert verdicts(changes)["gen_ppl"] == "WORSE" and "aaa" in history.regressions(changes)[0]
    changes = history.compare(line("ddd", gen_ppl=60.0), [other_scorer])
    figure = next(change for change in changes if change.name == "gen_ppl")
    assert figure.verdict == "not comparable" and "scoring.scorer was T and is S" in figure.why
    assert verdicts(changes)["bits_per_character"] == "within noise"  # a scorer has no part in these
    assert verdicts(changes)["known_word_share"] == "within noise"
    changes = history.compare(line("ddd"), [other_data])
    assert set(verdicts(changes).values()) == {"not comparable"}
    assert "data.fingerprint was other and is text" in changes[0].why
    assert set(verdicts(history.compare(line(), [])).values()) == {"first"}


def test_speed_is_compared_on_the_same_machine_only() -> None:
    slower = history.compare(line("bbb", rate=10.0), [line()])
    assert verdicts(slower)["tokens_per_second"] == "WORSE"
    changes = history.compare(line("bbb", rate=10.0, threads=1), [line()])
    assert verdicts(changes)["tokens_per_second"] == "not comparable"
    assert "threads was 2 and is 1" in next(c.why for c in changes if c.name == "tokens_per_second")


def test_the_same_weights_measured_in_the_same_way_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "history.jsonl"
    assert history.append(file, line())
    again = {**line(), "date": "later", "commit": "another"}
    assert not history.append(file, again)
    assert history.append(file, line(seed=8)) and history.append(file, line("bbb")) and history.append(
        file, line(temperature=0.9)
    )  # fmt: skip
    lines, broken = history.read(file)
    assert len(lines) == 4 and not broken and lines[0] == line()


def test_a_broken_line_is_named_and_stays_alone(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    history.append(file, line())
    with file.open("a") as stream:
        stream.write('{"weight_hash": "x"}\n\n[1]\n{"cut sho')
    history.append(file, line("bbb"))
    lines, broken = history.read(file)
    assert [found["weight_hash"] for found in lines] == ["aaa", "bbb"]
    assert [sentence.split(" of ")[0] for sentence in broken] == ["Line 2", "Line 4", "Line 5"]
    odd = {**line("ccc"), "format": 99}
    history.append(file, odd)
    assert "Line 7" in history.read(file)[1][-1] and "format 99" in history.read(file)[1][-1]


def test_a_line_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "history.jsonl"
    history.append(file, line())
    before = file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CelerisError, match="No space left"):
        history.append(file, line("bbb"))
    assert file.read_bytes() == before
    with pytest.raises(CelerisError, match="cannot be"):
        history.append(tmp_path, line())


def test_the_choices_of_a_line_are_those_that_its_keys_name() -> None:
    record = line()
    group = record["groups"][f"quality {KEY}"]
    for key in ("celeris/steps_16/eta_1/t1", "celeris/next_token/t1"):
        record["groups"][f"quality {key}"] = copy.deepcopy(group)
    assert choices_of(record) == {
        "num_inference_steps": [4, 16], "temperatures": [0.7, 1.0], "autoregressive_temperatures": [1.0],
        "solvers": ["eta_1"], "length": 256, "num_samples": 64, "score_characters": 6000,
    }  # fmt: skip
    masked = {"system": "mdlm", "groups": {"quality mdlm/steps_64/t0.7": group}}
    assert choices_of(masked)["masked_steps"] == [64] and "num_inference_steps" not in choices_of(masked)
    assert choices_of({"system": "celeris", "groups": {}}) == {}


def test_the_table_says_direction_and_verdict() -> None:
    table = history.table("t", history.compare(line("bbb", gen_ppl=60.0), [line()]))
    row = next(row for row in table.rows if row[0].endswith("gen_ppl"))
    assert row[1:] == ["40.000 ± 2.000", "60.000 ± 2.000", "lower", "+7.1", "WORSE"]
