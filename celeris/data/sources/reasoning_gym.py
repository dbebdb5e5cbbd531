"""Tasks with exact answers from reasoning-gym (Apache-2.0), generated from seeds; its scorers judge what is written."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from celeris.data.sources.base import Pair, Split, require
from celeris.data.sources.gym_forms import Entry, Form, Verbatim
from celeris.errors import CelerisError

REQUIREMENT = "reasoning-gym==0.1.25"


@dataclass(frozen=True)
class ReasoningGym:
    """Entries of one task as pairs; no held-out prompt occurs in training, and no prompt twice in a split.

    Attributes:
        task: reasoning-gym's name of it.
        size, seed: entries drawn for training (repeated and held-out prompts are then left out), and their seed.
        val_size, val_seed: the same of the held-out part.
        options: further settings of the task (`reasoning_gym.create_dataset`).
        form: how an entry becomes a pair; its own words when None.

    Raises:
        CelerisError: the package is not installed, the task or an option of it does not exist, or the two seeds would
            draw the same entries (entry k of seed s is entry 0 of seed s + k).
    """

    task: str
    size: int
    seed: int = 0
    val_size: int = 1000
    val_seed: int = 1_000_000_000
    options: Mapping[str, Any] = field(default_factory=dict)
    form: Form | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or self.val_size < 1:
            raise CelerisError(f"size={self.size} and val_size={self.val_size} of a task must be at least 1.")
        if self.seed < self.val_seed + self.val_size and self.val_seed < self.seed + self.size:
            raise CelerisError(
                f"Entries {self.seed} … {self.seed + self.size - 1} for training and {self.val_seed} … "
                f"{self.val_seed + self.val_size - 1} held out are partly the same; move val_seed."
            )

    @property
    def title(self) -> str:
        return f"reasoning-gym {self.task}"

    def pairs(self, split: Split) -> Iterator[Pair]:
        form = self.form or Verbatim()
        for entry in self._entries(split):
            yield Pair(form.prompt(entry), form.response(entry))

    def documents(self, split: Split) -> Iterator[str]:
        for pair in self.pairs(split):
            assert pair.prompt is not None
            yield pair.prompt
            yield pair.response

    def score(self, split: Split, number: int, response: str) -> float:
        """reasoning-gym's own score of `response` to pair `number` of `split`; 1 is right."""
        entry, form = self._entries(split)[number], self.form or Verbatim()
        return float(self._scorer.score_answer(form.answer(response), entry))

    def fingerprint(self) -> str:
        parts = (self.task, self.size, self.seed, self.val_size, self.val_seed, sorted(self.options.items()))
        return f"{REQUIREMENT}:{parts}:{self.form or Verbatim()!r}"

    @cached_property
    def _held_out(self) -> list[Entry]:
        return self._new_entries(self.val_size, self.val_seed, set())

    @cached_property
    def _train(self) -> list[Entry]:
        prompt = (self.form or Verbatim()).prompt
        return self._new_entries(self.size, self.seed, {prompt(entry) for entry in self._held_out})

    @cached_property
    def _scorer(self) -> Any:
        return self._create(1, 0)

    def _entries(self, split: Split) -> list[Entry]:
        return self._train if split == "train" else self._held_out

    def _new_entries(self, size: int, seed: int, seen: set[str]) -> list[Entry]:
        prompt = (self.form or Verbatim()).prompt
        return [entry for entry in self._create(size, seed) if _new(prompt(entry), seen)]

    def _create(self, size: int, seed: int) -> Any:
        require("reasoning_gym", "tasks with exact answers")
        import reasoning_gym  # only needed here

        create: Callable[..., Any] = reasoning_gym.create_dataset
        try:
            return create(self.task, size=size, seed=seed, **self.options)
        except (ValueError, TypeError, AssertionError) as error:
            raise CelerisError(f"reasoning-gym refuses the task {self.task!r} with these options: {error}.") from error


def _new(prompt: str, seen: set[str]) -> bool:
    new = prompt not in seen
    seen.add(prompt)
    return new
