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
from celeris.evaluation.comparison.groups import group, over_seeds
from celeris.evaluation.comparison.join import join
from celeris.evaluation.comparison.page import MARK, comparison_page, tables
from celeris.evaluation.comparison.points import KNOWN, batches, pareto_front, points
from celeris.evaluation.comparison.words import compare, findings
from celeris.evaluation.comparison.write import write_comparison
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
    assert likelihood["left"] == {"mean": pytest.approx(1.9), "sd": pytest.approx(0.02**0.5), "setting": None,
                                  "kind": "upper bound"}  # fmt: skip
    assert found["likelihood", "celeris", "mdlm"]["winner"] is None  # 1.9 both
    known = found["best known words", "celeris", "llama"]  # 0.92 ± 0.028 and 0.96 ± 0.014: 0.04 apart
    assert (known["winner"], known["noise"], known["left"]["setting"]) == ("llama", True, "celeris, steps_16/t1")
    assert found["best known words", "celeris", "mdlm"]["winner"] == "celeris"  # 0.7, the flagged one aside
    speed = found["tokens/s at equal known words (batch 1)", "celeris", "llama"]
    # both reach 0.92: celeris with 16 steps at 120, llama at 200
    assert (speed["winner"], speed["noise"], speed["level"]) == ("llama", False, "known words ≥ 92.0%, batch 1")
    assert (speed["left"]["mean"], speed["right"]["mean"]) == (120.0, 200.0)
    quick = found["tokens/s at equal known words (batch 16)", "celeris", "mdlm"]  # both reach 0.7: 1,600 and 200
    assert (quick["winner"], quick["left"]["mean"], quick["right"]["mean"]) == ("celeris", 1600.0, 200.0)
    against_llama, against_mdlm, upper = record["findings"]["sentences"]  # llama and mdlm have no sentence
    assert against_llama.startswith("celeris against llama: loses: likelihood, tokens/s at equal known words (batch 1)")
    assert "wins: nowhere" not in against_llama  # equal scorer bits: the fastest of celeris, 400, is faster than 200
    assert "neither, equal or within the noise: best known words" in against_llama
    assert "No spread is known" not in against_llama and against_mdlm.startswith("celeris against mdlm")
    assert "does not prove the worse model" in upper


def test_head_to_head_has_ours_first_and_every_figure() -> None:
    runs = [entry("llama", 1, 1.5, [setting("llama/t1", 0.9)], kind="exact"),
            entry("celeris", 1, 2.0, [setting("celeris/steps_4/t1", 0.8)])]  # fmt: skip
    speed = {"settings": [timed("llama/t1", 100.0, "llama1"), timed("celeris/steps_4/t1", 250.0, "celeris1")]}
    record = join(runs, MADE, speed=speed)
    record["findings"] = findings(record)
    (table,) = tables(record)["Head to head"]
    assert table.title == "celeris against llama" and table.columns[1:3] == ["celeris", "llama"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["likelihood"] == ["2.000 (upper bound)", "1.500 (exact)", "llama", "–", "no spread known"]
    assert rows["best known words"] == ["80.0% (steps_4/t1)", "90.0% (t1)", "llama", "–", "no spread known"]
    assert rows["tokens/s with known words ≥ 80.0%, batch 1"] == [
        "250 ± 1 (steps_4/t1)", "100 ± 1 (t1)", "celeris", "2.5", "beyond the noise"]  # fmt: skip
    assert "No spread is known of: likelihood, best known words" in record["findings"]["sentences"][0]


def test_perplexities_are_read_at_one_entropy() -> None:
    """Real text has 2.6 nats, so they are read at 2.5: between 4 at 2.4 and 16 at 2.6 that is 8."""

    def at(key: str, temperature: str, ppl: float, entropy: float) -> dict[str, Any]:
        return setting(f"{key}/t{temperature}", 0.5, gen_ppl=ppl, entropy=entropy, real_entropy_same_length=2.6)

    ours = [at("celeris/steps_4", "0.5", 4.0, 2.4), at("celeris/steps_4", "1", 16.0, 2.6)]
    theirs = [at("llama", "0.7", 3.0, 2.45), at("llama", "1", 27.0, 2.6)]
    runs = [entry("celeris", 1, 2.0, ours), entry("llama", 1, 2.0, theirs)]
    found = {v["figure"]: v for v in findings(join(runs, MADE))["verdicts"]}["gen_ppl"]
    assert found["left"]["mean"] == pytest.approx(8.0)
    assert found["right"]["mean"] == pytest.approx(3.0 * 9 ** (1 / 3))
    assert found["winner"] == "llama"
    runs[0] = entry("celeris", 1, 2.0, ours[:1])
    record = join(runs, MADE)
    record["findings"] = findings(record)
    assert "gen_ppl" not in {v["figure"] for v in record["findings"]["verdicts"]}
    assert "celeris has not temperatures on both sides" in tables(record)["Head to head"][0].notes[0]


def test_a_tie_is_called_one() -> None:
    runs = [entry(name, 1, 2.0, [setting(f"{name}/t1", 0.9)], kind="exact") for name in ("celeris", "llama")]
    speed = {"settings": [timed(f"{name}/t1", 100.0, f"{name}1", sd=None) for name in ("celeris", "llama")]}
    record = join(runs, MADE, speed=speed)
    record["findings"] = findings(record)
    assert all(v["winner"] is None for v in record["findings"]["verdicts"]) and record["findings"]["verdicts"]
    assert "loses: nowhere; wins: nowhere" in record["findings"]["sentences"][0]
    assert {tuple(row[3::2]) for row in tables(record)["Head to head"][0].rows} == {("equal", "–")}


# -- contenders ----------------------------------------------------------------------------------------------------


def with_head() -> dict[str, Any]:
    """celeris, which writes better token by token than by diffusion, against llama."""
    ours = [
        setting("celeris/steps_4/t1", 0.5),
        setting("celeris/next_token/t1", 0.99, decoder="autoregressive", label="celeris, next token, T 1"),
    ]
    run = entry("celeris", 1, 2.0, ours)
    results = run.report["metrics"]["likelihood"]["results"]
    results["next token"] = {**results["bound"], "kind": "exact", "bits_per_character": 1.2, "definition": "by token"}
    other = entry("llama", 1, 1.5, [setting("llama/t1", 0.9)], kind="exact")
    for report in (run.report, other.report):
        for name in ("5-gram", "unigram"):
            ngram = {
                **results["bound"],
                "kind": "exact",
                "standard_error_bits_per_character": None,
                "definition": "n-gram",
            }
            report["metrics"]["likelihood"]["results"][name] = ngram
    by_token = {**timed("celeris/next_token/t1", 900.0, "celeris1"), "decoder": "autoregressive"}
    calls = [timed("celeris/steps_4/t1", 90.0, "celeris1"), timed("llama/t1", 50.0, "llama1"), by_token]
    record = join([other, run], MADE, speed={"settings": calls})
    record["findings"] = findings(record)
    return record


def test_the_next_token_head_is_a_contender_of_its_own() -> None:
    record = with_head()
    assert problem(record, COMPARISON) is None
    ours, head, llama = record["systems"]
    assert [s["name"] for s in record["systems"]] == ["celeris", "celeris, next token", "llama"]
    assert (ours["part_of"], head["part_of"], llama["part_of"]) == (None, "celeris", None)
    for system, key in ((ours, "celeris/steps_4/t1"), (head, "celeris/next_token/t1")):
        assert [s["key"] for s in system["settings"]] == [s["key"] for s in system["speed"]] == [key]
    assert set(ours["likelihood"]["results"]) == {"bound"}
    assert head["likelihood"]["results"]["next token"]["bits_per_character"]["mean"] == 1.2
    assert {p["system"] for p in record["points"]} == {"celeris", "celeris, next token", "llama"}
    on = {(f["figure"], f["batch"]): f["front"] for f in record["fronts"]}
    assert on["known_word_share", 1] == [{"system": "celeris, next token", "key": "celeris/next_token/t1"}]
    found = {(v["what"], v["one"], v["other"]): v["winner"] for v in record["findings"]["verdicts"]}
    assert found["likelihood", "celeris", "llama"] == found["best known words", "celeris", "llama"] == "llama"
    assert found["best known words", "celeris", "celeris, next token"] == "celeris, next token"
    assert [t.title for t in tables(record)["Head to head"]] == [
        "celeris against celeris, next token",
        "celeris against llama",
    ]
    assert len(tables(record)["Provenance"][0].rows) == 2
    assert [row[0] for row in tables(record)["Quality"][0].rows][1] == "celeris, next token, T 1"


def test_ngrams_and_definitions_stand_once() -> None:
    record = with_head()
    names = [row[0] for row in tables(record)["Likelihood"][0].rows]
    assert names == ["celeris: bound", "celeris, next token", "llama: exact", "yardstick: 5-gram", "yardstick: unigram"]
    page = comparison_page(record, {})
    assert page.count("* likelihood, 5-gram and unigram: n-gram") == page.count(": n-gram") == 1
    assert page.count("how bound is measured") == page.count("by token") == 1
    runs = [entry(name, 1, 2.0, []) for name in ("celeris", "mdlm")]
    runs[1].report["metrics"]["likelihood"]["results"]["bound"]["definition"] = "otherwise"
    words = join(runs, MADE)["definitions"]["likelihood"]
    assert words == {"bound of celeris": "how bound is measured", "bound of mdlm": "otherwise", "unit": "tokens"}


def test_ngrams_that_differ_are_said_to() -> None:
    runs = [entry(name, 1, bits, []) for name, bits in (("celeris", 2.0), ("llama", 1.0))]
    for run in runs:
        results = run.report["metrics"]["likelihood"]["results"]
        results["unigram"] = results["bound"]
    assert "The unigram of llama has 0.7000 nats/token, not 1.4000" in join(runs, MADE)["warnings"][0]


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
    assert (
        "\n1. `python evaluate.py 'compare=[a, b]'`\n2. `python train.py" in text and text.count("compare=[a, b]") == 1
    )
    made = "Made by [command 1](#commands); trainings: [commands 2–6](#commands)."
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
    assert "No speed was measured" in page and "loses: likelihood;" in page and "No spread is known of: lik" in page


def test_a_flag_of_any_seed_marks_the_setting() -> None:
    runs = [
        entry("celeris", 1, 2.0, [setting("celeris/t1", 0.9)]),
        entry("celeris", 2, 2.0, [setting("celeris/t1", 0.9, flags=["REPETITIVE at x"])]),
    ]
    record = join(runs, MADE)
    assert record["systems"][0]["settings"][0]["flags"] == ["REPETITIVE at x"]
    assert tables({**record, "findings": findings(record)})["Quality"][0].rows[0][0].endswith("!")
    assert KNOWN.key == "known_word_share"
