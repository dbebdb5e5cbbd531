"""Tasks with exact answers, functions of the standard library, articles, mixtures: pairs and their division."""

import ast

import pytest

from celeris.data.sources import gym_forms
from celeris.data.sources.base import Pair, PairSource
from celeris.data.sources.docstrings import Docstrings, functions
from celeris.data.sources.mixture import Mixture
from celeris.data.sources.reasoning_gym import ReasoningGym
from celeris.data.sources.sotu import Sotu
from celeris.data.sources.wiki_pairs import WikiPairs
from celeris.errors import CelerisError

WORDS = {"min_word_len": 3, "max_word_len": 4}
TASKS = [
    ("spell_backward", WORDS, gym_forms.Field("word")),
    ("number_sorting", {"min_numbers": 3, "max_numbers": 4, "min_value": 0, "max_value": 99,
                        "min_decimals": 0, "max_decimals": 0}, gym_forms.SortedNumbers()),
    ("chain_sum", {"max_terms": 3, "max_digits": 2}, gym_forms.Field("expression")),
    ("mini_sudoku", {"min_empty": 4, "max_empty": 8}, gym_forms.Board()),
    ("countdown", {"max_numbers": 4, "max_value": 20, "min_target": 1, "max_target": 100}, gym_forms.Target()),
    ("gsm_symbolic", {}, gym_forms.Verbatim()),
    ("gsm_symbolic", {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("task", "options", "form"), TASKS, ids=[f"{t[0]}-{t[2]}" for t in TASKS])
def test_the_reference_is_right_and_another_answer_is_not(task, options, form) -> None:
    pytest.importorskip("reasoning_gym")
    source = ReasoningGym(task, 20, val_size=8, options=options, form=form)
    held_out = list(source.pairs("val"))
    assert held_out == list(source.pairs("val")) and isinstance(source, PairSource)
    for k, pair in enumerate(held_out):
        assert source.score("val", k, pair.response) == 1
        others = [other.response for other in held_out if other.response != pair.response]
        assert all(source.score("val", k, other) < 1 for other in others) or task in ("countdown", "chain_sum")
        assert source.score("val", k, "") < 1 and source.score("val", k, "?") < 1


def test_prompts_are_new_in_their_split_and_none_is_in_both() -> None:
    """Few words, so that repetitions are certain."""
    pytest.importorskip("reasoning_gym")
    source = ReasoningGym("spell_backward", 3000, val_size=300, options={"min_word_len": 3, "max_word_len": 3},
                          form=gym_forms.Field("word"))  # fmt: skip
    train, held_out = ([pair.prompt for pair in source.pairs(split)] for split in ("train", "val"))
    assert len(set(train)) == len(train) < 3000 and len(set(held_out)) == len(held_out)
    assert not set(train) & set(held_out)


def test_forms_are_short_and_their_answers_are_read_back() -> None:
    entry = {
        "question": "…",
        "answer": "['3.0', '25.0']",
        "metadata": {"direction": "descending", "original_numbers": ["3.0", "25.0"], "sorted_numbers": ["25.0", "3.0"]},
    }
    form = gym_forms.SortedNumbers()
    assert (form.prompt(entry), form.response(entry), form.answer("25 3")) == ("down 3 25", "25 3", "['25', '3']")
    board = {"answer": "1 2\n3 4", "metadata": {"puzzle": [[1, 0], [0, 4]]}}
    assert gym_forms.Board().prompt(board) == "1_\n_4"
    assert gym_forms.Board().answer(gym_forms.Board().response(board)) == board["answer"]


def test_mistakes_are_sentences() -> None:
    with pytest.raises(CelerisError, match="move val_seed"):
        ReasoningGym("spell_backward", 100, seed=0, val_seed=50)
    pytest.importorskip("reasoning_gym")
    with pytest.raises(CelerisError, match="refuses the task 'spell_forward'"):
        list(ReasoningGym("spell_forward", 10).pairs("val"))
    with pytest.raises(CelerisError, match="refuses the task"):
        list(ReasoningGym("spell_backward", 10, options={"words": 3}).pairs("val"))


def test_everything_that_decides_the_pairs_is_in_the_fingerprint() -> None:
    base = ReasoningGym("spell_backward", 10)
    others = [
        ReasoningGym("spell_backward", 11),
        ReasoningGym("spell_backward", 10, seed=1),
        ReasoningGym("spell_backward", 10, val_size=9),
        ReasoningGym("spell_backward", 10, options=WORDS),
        ReasoningGym("spell_backward", 10, form=gym_forms.Field("word")),
    ]
    assert len({source.fingerprint() for source in [base, *others]}) == 6


CODE = '''
class Thing:
    def one(self):
        """First."""
        # why
        return [1,
                2]

    def none(self):
        """Only words."""

def two(a: int) -> int:
    return a

async def three(b):
    """
    Third.
    """
    if b:
        await b

def four(): "On its line."; return 4
'''


def test_a_function_is_cut_behind_its_docstring() -> None:
    found = {pair.prompt.split("(")[0]: pair for pair in functions(CODE) if pair.prompt is not None}
    assert found.keys() == {"def one", "async def three"}
    assert found["def one"] == Pair('def one(self):\n    """First."""\n', "    # why\n    return [1,\n            2]")
    assert list(functions("def broken(:")) == []


def test_the_library_is_divided_by_module() -> None:
    source = Docstrings()
    train, held_out = list(source.pairs("train")), list(source.pairs("val"))
    assert len(train) > 2000 and len(held_out) > 50
    assert not {pair.prompt for pair in train} & {pair.prompt for pair in held_out}
    for prompt, response in held_out[:50]:
        ast.parse(f"{prompt}{response}")


def test_articles_have_a_title_and_one_sentence() -> None:
    one, whole = WikiPairs(), WikiPairs(sentences=None)
    short, full = list(one.pairs("val")), list(whole.pairs("val"))
    assert one.fingerprint() != whole.fingerprint() and len(short) == len(full) > 100
    assert all(b.response.startswith(a.response) and a.prompt == b.prompt for a, b in zip(short, full, strict=True))
    assert sum(len(a.response) < len(b.response) for a, b in zip(short, full, strict=True)) > 0.8 * len(short)
    assert not {pair.prompt for pair in short} & {pair.prompt for pair in one.pairs("train")}


def test_a_mixture_keeps_a_share_of_training_and_all_that_is_held_out() -> None:
    parts = [WikiPairs(), Sotu()]
    mixture = Mixture(parts, [0.5, 1.0])
    texts = [pair for pair in mixture.pairs("train") if pair.prompt is None]
    assert [pair.response for pair in texts] == list(Sotu().documents("train"))
    share = (len(list(mixture.pairs("train"))) - len(texts)) / len(list(parts[0].pairs("train")))
    assert share == pytest.approx(0.5, abs=0.02)
    assert len(list(mixture.pairs("val"))) == len(list(parts[0].pairs("val"))) + len(list(parts[1].documents("val")))
    with pytest.raises(CelerisError, match="shares"):
        Mixture(parts, [0.5])
