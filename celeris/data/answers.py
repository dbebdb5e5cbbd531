"""What a model in training answers to prompts that are held out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from celeris.data.sources.base import Pair, Source, pairs_of
from celeris.language_model import LanguageModel
from celeris.sampling.request import Message, tokenizer_of


class Answered(NamedTuple):
    """A line for each prompt: the prompt, what was answered, and what was wanted where that differs."""

    texts: list[str]


@dataclass(frozen=True)
class Answers:
    """A sampler for the samples callback: the first held-out prompts that fit the window, as chats.

    Attributes:
        sampler: (model, prompts, max_new_tokens=…) → record with `.texts`; a decoder with everything else filled in.
        source: of pairs; of a source that has none the sampler writes from nothing.
        count: prompts.
    """

    sampler: Any
    source: Source
    count: int = 4

    def __call__(self, model: LanguageModel) -> Answered:
        tokenizer = tokenizer_of(model)
        chats: list[list[Message]] = []
        wanted: list[Pair] = []
        longest, room = 1, model.max_length
        for pair in self._pairs():
            chat: list[Message] = [{"role": "user", "content": str(pair.prompt)}]
            prompt, answer = len(tokenizer.encode_chat(chat)), len(tokenizer.encode(pair.response)) + 1
            if prompt + answer <= model.max_length:
                chats.append(chat)
                wanted.append(pair)
                longest, room = max(longest, answer), min(room, model.max_length - prompt)
            if len(chats) == self.count:
                break
        if not chats:
            return Answered(self.sampler(model, [""] * self.count, max_new_tokens=model.max_length).texts)
        answers = self.sampler(model, chats, max_new_tokens=min(longest, room)).texts
        return Answered([_line(pair, answer) for pair, answer in zip(wanted, answers, strict=True)])

    def _pairs(self) -> Iterator[Pair]:
        return (pair for pair in pairs_of(self.source, "val") if pair.prompt is not None)


def _line(pair: Pair, answer: str) -> str:
    return f"{pair.prompt} → {answer}" + ("" if answer == pair.response else f" (wanted: {pair.response})")
