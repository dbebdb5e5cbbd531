"""Prompt use: won by a loss that reads the prompt, a coin's toss for one that does not."""

import pytest
import torch
from torch import Tensor

from celeris.errors import CelerisError
from celeris.evaluation.prompted import Prompted, share_won
from celeris.evaluation.windows import PromptPairs

from .fakes import subject


class LastTokenCounts:
    """Low loss where the prompt's last token is the continuation's first."""

    definition = "test"

    def __call__(self, prompts: Tensor, continuations: Tensor) -> Tensor:
        return (prompts[:, -1] != continuations[:, 0]).double()


class Blind:
    definition = "test"

    def __call__(self, prompts: Tensor, continuations: Tensor) -> Tensor:
        return continuations.double().mean(1)


def test_true_prompt_wins_exactly_where_the_loss_reads_it():
    prompts = torch.tensor([[9, 1], [9, 2], [9, 3], [9, 4]])
    pairs = PromptPairs(prompts, prompts.roll(-1, 0), torch.tensor([[1, 5], [2, 5], [3, 5], [7, 5]]))
    assert share_won(LastTokenCounts(), pairs).tolist() == [1.0, 1.0, 1.0, 0.0]
    assert share_won(Blind(), pairs).tolist() == [0.0] * 4  # the same noise for both: an exact tie is no win


def test_too_little_text_is_said_and_no_crash():
    section = Prompted(pairs=5)(subject(val_documents=["short\nlines\nonly"]))
    assert section.record["pairs"] == 0
    assert "no two held-out paragraphs" in section.unavailable[0]


def test_window_too_small_is_refused():
    with pytest.raises(CelerisError, match="window of 64"):
        Prompted(prompt_length=60, continuation_length=16)(subject())
    with pytest.raises(CelerisError, match="prompt_length=0"):
        Prompted(prompt_length=0)
