"""A comparison: seeds joined by hand arithmetic, refusals, fronts, sentences that follow, pages that stand alone."""

import copy
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from celeris.errors import CelerisError
from celeris.evaluation.compare import join
from celeris.evaluation.compare_groups import group, over_seeds
from celeris.evaluation.compare_page import MARK, comparison_page, tables
from celeris.evaluation.compare_points import KNOWN, batches, pareto_front, points
from celeris.evaluation.compare_words import compare, findings
from celeris.evaluation.compare_write import write_comparison
from celeris.evaluation.html import to_html
from celeris.evaluation.schema import COMPARISON, REPORT, check, problem

from .comparisons import DATA, MADE, SCORING, entry, setting, three_systems, timed


def joined() -> dict[str, Any]:
    entries, speed = three_systems()
    record = join(entries, MADE, speed=speed)
    record["findings"] = findings(record)
    return record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("comparison")
    write_comparison(joined(), path)
    return path


# -- seeds ---------------------------------------------------------------------------------------------------------


def test_seeds_become_mean_and_sample_deviation() -> None:
    celeris, llama, mdlm = joined()["systems"]
    assert [s["name"] for s in (celeris, llama, mdlm)] == ["celeris", "llama", "mdlm"]
    bits = celeris["likelihood"]["results"]["bound"]["bits_per_character"]
    assert (bits["mean"], bits["n"]) == (pytest.approx(1.9), 2)
    assert bits["sd"] == pytest.approx(0.2 / 2**0.5)  # of 1.8 and 2.0: sqrt(((0.1)² + (0.1)²) / 1)
    known = {s["key"]: s["figures"]["known_word_share"] for s in celeris["settings"]}
    assert known["celeris/steps_4/t1"]["mean"] == pytest.approx(0.82)
    assert known["celeris/steps_4/t1"]["sd"] == pytest.approx(0.04 / 2**0.5)
    assert mdlm["settings"][0]["figures"]["known_word_share"] == {"mean": 0.5, "sd": None, "n": 1, "values": [0.5]}
    assert "temperature" not in celeris["settings"][0]["figures"] and "mauve" not in celeris["settings"][0]["figures"]
    assert over_seeds([None, None]) is None


def test_only_the_seed_may_differ_within_a_system() -> None:
    one, two = (entry("celeris", seed, 2.0, []) for seed in (1, 2))
    assert list(group([one, two])) == ["celeris"]
    other = replace(two, training={**two.training, "settings": {"model.width": 8}, "experiment": "tiny"})
    assert list(group([one, other])) == ["celeris (compare/celeris_tiny)", "celeris (tiny)"]
    same_name = replace(two, training={**two.training, "settings": {"model.width": 8}})
    assert list(group([one, same_name])) == ["celeris (runs/celeris/1)", "celeris (runs/celeris/2)"]
    steps = {**two.report, "checkpoint": {**two.checkpoint, "step": 200}}
    assert len(group([one, replace(two, report=steps)])) == 2


# -- refusals ------------------------------------------------------------------------------------------------------


def test_one_run_or_the_same_weights_twice_are_refused() -> None:
    run = entry("celeris", 1, 2.0, [])
    with pytest.raises(CelerisError, match="at least two"):
        join([run], MADE)
    with pytest.raises(CelerisError, match="same weights"):
        join([run, replace(run, source="copy")], MADE)


@pytest.mark.parametrize(("key", "words"), [("source_fingerprint", "text"), ("tokenizer_fingerprint", "tokenizer"),
                                            ("packing", "packing"), ("eos_policy", "EOS policy")])  # fmt: skip
def test_other_data_is_refused(key: str, words: str) -> None:
    one, two = entry("celeris", 1, 2.0, []), entry("llama", 1, 2.0, [], data={**DATA, key: "other"})
    with pytest.raises(CelerisError, match=f"another {words} .*'other'"):
        join([one, two], MADE, allow_other_scoring=True)


def test_other_rows_are_refused() -> None:
    with pytest.raises(CelerisError, match="another held-out rows|held-out rows .*8 and 9"):
        join([entry("celeris", 1, 2.0, []), entry("llama", 1, 2.0, [], rows=9)], MADE)


@pytest.mark.parametrize("key", sorted(SCORING))
def test_other_scoring_is_refused_without_leave_and_named_with_it(key: str) -> None:
    runs = [entry("celeris", 1, 2.0, []), entry("llama", 1, 2.0, [], scoring={**SCORING, key: "other"})]
    with pytest.raises(CelerisError, match=f"{key.replace('_', ' ')}: .*allow_other_scoring=true"):
        join(runs, MADE)
    assert "NOT COMPARABLE" in join(runs, MADE, allow_other_scoring=True)["warnings"][0]


# -- fronts --------------------------------------------------------------------------------------------------------


def test_pareto_front_is_what_nothing_beats() -> None:
    generator = random.Random(0)
    for _ in range(200):
        places = [(generator.randint(0, 6), generator.randint(0, 6)) for _ in range(generator.randint(0, 12))]
        oracle = [
            i for i, (x, y) in enumerate(places) if not any(u >= x and v >= y and (u > x or v > y) for u, v in places)
        ]
        assert sorted(pareto_front(places)) == oracle
    assert pareto_front([]) == []


def test_flagged_texts_are_on_no_front() -> None:
    record = joined()
    on = {(f["batch"], f["figure"]): [p["key"] for p in f["front"]] for f in record["fronts"]}
    # 900 tokens/s of mdlm are low-entropy; left are 400 at 0.82, 200 at 0.96, 120 at 0.92, 50 at 0.7
    assert on[1, "known_word_share"] == ["celeris/steps_4/t1", "llama/t1"]
    assert batches(record["points"]) == [1, 16]


def test_speed_of_another_temperature_serves_and_longer_prompts_do_not() -> None:
    other = {**timed("celeris/steps_4/t1", 7.0, "celeris1"), "prompt_length": 16}
    run = entry("celeris", 1, 2.0, [setting("celeris/steps_4/t0.7", 0.8)])
    base = join([run, entry("llama", 1, 2.0, [])], MADE)
    base["systems"][0]["speed"] = [timed("celeris/steps_4/t1", 5.0, "celeris1"), other]
    (point,) = points(base["systems"])
    assert (point["tokens_per_second"], point["speed_key"]) == (5.0, "celeris/steps_4/t1")


# -- sentences -----------------------------------------------------------------------------------------------------


def test_outcomes_by_hand() -> None:
    def value(mean: float, sd: float | None) -> dict[str, Any]:
        return {"mean": mean, "sd": sd}

    assert compare(value(1.0, 0.1), value(1.5, 0.1), more=False) == (1, False)
    assert compare(value(1.0, 0.1), value(1.5, 0.1), more=True) == (-1, False)
    assert compare(value(1.0, 0.3), value(1.5, 0.2), more=False) == (1, True)  # the intervals touch
    assert compare(value(1.0, None), value(1.5, None), more=True) == (-1, None)
    assert compare(value(1.0, None), value(1.5, 0.6), more=True) == (-1, True)
    assert compare(value(1.0, None), value(1.0, None), more=True) == (0, None)


def test_sentences_follow_from_the_figures() -> None:
    record = joined()
    found = {(v["what"], v["one"], v["other"]): v for v in record["findings"]["verdicts"]}
    likelihood = found["likelihood", "celeris", "llama"]  # 1.9 ± 0.141 and 1.55 ± 0.071: 0.35 apart
    assert (likelihood["winner"], likelihood["noise"], likelihood["bound"]) == ("llama", False, True)
    assert "1.900 ± 0.141 (upper bound)" in likelihood["sentence"] and "1.550 ± 0.071 (exact)" in likelihood["sentence"]
    assert found["likelihood", "celeris", "mdlm"]["winner"] is None  # 1.9 both
    assert "equal." in found["likelihood", "celeris", "mdlm"]["sentence"]
    known = found["best known words", "celeris", "llama"]  # 0.92 ± 0.028 and 0.96 ± 0.014: 0.04 apart
    assert (known["winner"], known["noise"]) == ("llama", True) and "within the noise" in known["sentence"]
    assert found["best known words", "celeris", "mdlm"]["winner"] == "celeris"  # 0.7, the flagged one aside
    speed = found["tokens/s at equal known words (batch 1)", "celeris", "llama"]
    # both reach 0.92: celeris with 16 steps at 120, llama at 200
    assert (speed["winner"], speed["noise"]) == ("llama", False)
    assert "at least 92.0%" in speed["sentence"] and "1.7 times" in speed["sentence"]
    quick = found["tokens/s at equal known words (batch 16)", "celeris", "mdlm"]  # both reach 0.7: 1,600 and 200
    assert quick["winner"] == "celeris" and "8.0 times" in quick["sentence"]
    assert not [s for s in record["findings"]["sentences"] if "celeris" not in s and "upper bound may" not in s]
    last = record["findings"]["sentences"][-2]
    assert last.startswith("celeris against llama: loses: likelihood, tokens/s at equal known words (batch 1)")
    assert "wins: nowhere" not in last  # equal scorer bits at 2.0: the fastest of celeris, 400, is faster than 200
    assert "neither, equal or within the noise: best known words" in last
    assert any("does not prove the worse model" in sentence for sentence in record["findings"]["sentences"])


def test_a_tie_is_called_one() -> None:
    runs = [entry(name, 1, 2.0, [setting(f"{name}/t1", 0.9)], kind="exact") for name in ("celeris", "llama")]
    speed = {"settings": [timed(f"{name}/t1", 100.0, f"{name}1", sd=None) for name in ("celeris", "llama")]}
    found = findings(join(runs, MADE, speed=speed))
    assert all(v["winner"] is None and "equal" in v["sentence"] for v in found["verdicts"]) and found["verdicts"]
    assert "loses: nowhere; wins: nowhere" in found["sentences"][-1]


def test_speed_of_separate_evaluations_is_said_to_be_that() -> None:
    runs = [
        entry(name, 1, 2.0, [setting(f"{name}/t1", 0.9)], speed=[timed(f"{name}/t1", 9.0, f"{name}1")])
        for name in ("celeris", "llama")
    ]
    record = join(runs, MADE)
    assert len(record["points"]) == 2 and "not interleaved" in record["warnings"][0]


# -- schemas -------------------------------------------------------------------------------------------------------


def test_records_fit_their_schemas() -> None:
    entries, _ = three_systems()
    assert problem(joined(), COMPARISON) is None
    assert [problem(dict(e.report), REPORT) for e in entries] == [None] * 5


def test_every_missing_key_is_found() -> None:
    record = joined()
    for key in record:
        assert problem({k: v for k, v in record.items() if k != key}, COMPARISON), key
    report = dict(three_systems()[0][0].report)
    for key in report:
        assert problem({k: v for k, v in report.items() if k != key}, REPORT), key


@pytest.mark.parametrize("path", ["systems.0.runs.0.weight_hash", "systems.0.settings.0.figures.entropy.sd",
                                  "systems.0.likelihood.results.bound.kind", "points.0.degenerate"])  # fmt: skip
def test_a_missing_key_below_is_found_with_its_place(path: str) -> None:
    record = copy.deepcopy(joined())
    *way, last = path.split(".")
    node: Any = record
    for step in way:
        node = node[int(step) if isinstance(node, list) else step]
    del node[last]
    assert problem(record, COMPARISON)
    with pytest.raises(CelerisError, match="comparison.schema.json"):
        check(record, COMPARISON)


# -- pages ---------------------------------------------------------------------------------------------------------


def test_files_are_all_there(folder: Path) -> None:
    names = {"comparison.md", "comparison.html", "comparison.json", "frontier.png", "pareto_batch_1.png",
             "pareto_batch_16.png"}  # fmt: skip
    assert {file.name for file in folder.iterdir()} == names
    assert problem(json.loads((folder / "comparison.json").read_text(encoding="utf-8")), COMPARISON) is None


def test_html_asks_nothing_of_anyone_and_has_every_picture_and_table(folder: Path) -> None:
    html = (folder / "comparison.html").read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href|url|action|data)\s*[=(]\s*["\']?([^"\')\s>]*)', html)
    assert {s.split(":")[0] if ":" in s else s for s in sources} <= {"data", "#commands"}
    assert "<script" not in html and "http:" not in html and "https:" not in html and "<link" not in html
    assert html.count("data:image/png;base64,") == len(list(folder.glob("*.png"))) == 3
    shown = sum(map(len, tables(joined()).values()))
    assert html.count("<table>") == html.count("</table>") == shown >= 6
    assert MARK not in html
    assert 'href="#commands"' in html and '<h2 id="commands">' in html


def test_tables_are_read_as_tables_and_every_one_says_its_command(folder: Path) -> None:
    text = (folder / "comparison.md").read_text(encoding="utf-8")
    tokens = MarkdownIt("js-default").parse(text)
    cells = [len(row.split(" | ")) for row in text.splitlines() if row.startswith("| ")]
    assert sum(token.type == "table_open" for token in tokens) == sum(map(len, tables(joined()).values())) and cells
    for some in tables(joined()).values():
        for table in some:
            assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
            assert table.title in text
    made = "Made by `python evaluate.py 'compare=[a, b]'`"
    assert text.count(made) == sum(map(len, tables(joined()).values())) + 3 + 1  # pictures, and the sentences
    assert "python train.py experiment=compare/celeris_tiny seed=2" in text
    for fact in ("celeris2", "deadbeef", "c0ffee", "upper bound", "how exact is measured", "LOW-ENTROPY at"):
        assert fact in text, fact


def test_words_above_the_mark_stay(tmp_path: Path) -> None:
    runs = [entry("celeris", 1, 2.0, []), entry("llama", 1, 1.0, [], kind="exact")]
    record = join(runs, MADE)
    record["findings"] = findings(record)
    write_comparison(record, tmp_path)
    page = tmp_path / "comparison.md"
    written = page.read_text(encoding="utf-8")
    page.write_text("# Mine\n\nWho wins <b>where</b>.\n\n" + written[written.index(MARK) :], encoding="utf-8")
    write_comparison(record, tmp_path)
    assert page.read_text(encoding="utf-8").startswith(f"# Mine\n\nWho wins <b>where</b>.\n\n{MARK}\n")
    assert "Who wins &lt;b&gt;where&lt;/b&gt;." in (tmp_path / "comparison.html").read_text(encoding="utf-8")


def test_pictures_from_elsewhere_become_their_words(tmp_path: Path) -> None:
    text = "![far](https://example.org/a.png) ![up](../a.png) ![none](b.png)"
    html = to_html(text, tmp_path, "t")
    assert "<img" not in html and "far" in html and "example.org" not in html


def test_without_speed_or_samples_the_page_says_so() -> None:
    runs = [entry("celeris", 1, 2.0, []), entry("llama", 1, 1.0, [], kind="exact")]
    record = join(runs, MADE)
    record["findings"] = findings(record)
    assert problem(record, COMPARISON) is None
    page = comparison_page(record, {})
    assert "No speed was measured" in page and "llama is lower (no spread is known: one run each)" in page


def test_a_flag_of_any_seed_marks_the_setting() -> None:
    runs = [
        entry("celeris", 1, 2.0, [setting("celeris/t1", 0.9)]),
        entry("celeris", 2, 2.0, [setting("celeris/t1", 0.9, flags=["REPETITIVE at x"])]),
    ]
    record = join(runs, MADE)
    assert record["systems"][0]["settings"][0]["flags"] == ["REPETITIVE at x"]
    assert tables({**record, "findings": {"sentences": []}})["Quality"][0].rows[0][0].endswith("!")
    assert KNOWN.key == "known_word_share"
