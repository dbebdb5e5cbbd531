"""The samples of a run on prompts with responses are answers to held-out prompts."""

from types import SimpleNamespace
from typing import Any

from celeris.data.answers import Answers
from celeris.data.sources.base import Pair
from celeris.data.tokenizers import CharTokenizer
from tests.core.small import small_model
from tests.data.test_data_pairs import Questions

PAIRS = [Pair(None, "plain"), Pair("p" * 70, "too long"), Pair("abc", "cba"), Pair("xy", "yx"), Pair("pq", "qp")]


def echo(seen: list[Any]) -> Any:
    def sampler(model: Any, prompts: Any, *, max_new_tokens: int) -> Any:
        seen.append((prompts, max_new_tokens))
        return SimpleNamespace(texts=[p if isinstance(p, str) else p[0]["content"][:2][::-1] for p in prompts])

    return sampler


def test_prompts_are_chats_and_what_was_wanted_stands_beside_a_wrong_answer() -> None:
    tokenizer = CharTokenizer(roles=True)(["abcpqxyloingt "])
    model, seen = small_model(tokenizer.vocab_size, role_ids=tokenizer.role_ids), []
    model.tokenizer = tokenizer
    lines = Answers(echo(seen), Questions(PAIRS), count=2)(model).texts
    assert lines == ["abc → ba (wanted: cba)", "xy → yx"]
    (prompts, limit) = seen[0]
    assert prompts[0] == [{"role": "user", "content": "abc"}] and limit == len("cba") + 1


def test_without_pairs_it_writes_from_nothing() -> None:
    tokenizer = CharTokenizer()(["plain"])
    model, seen = small_model(tokenizer.vocab_size), []
    model.tokenizer = tokenizer
    assert Answers(echo(seen), Questions(PAIRS[:1]), count=3)(model).texts == [""] * 3
    assert seen == [(["", "", ""], model.max_length)]
