"""Prompts with responses: tokens, rows, layout, and what is asked of the model."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from celeris.baselines import Llama, LlamaNextToken
from celeris.data.layouts import AllBlocks, Responses
from celeris.data.packing import PairRows
from celeris.data.sources.base import Pair, Split
from celeris.data.text_data import TextData
from celeris.data.tokenizers import ByteTokenizer, CharTokenizer
from celeris.errors import CelerisError
from celeris.noise.levels import LevelMixture, PerToken
from celeris.objectives import CrossEntropy
from celeris.objectives.tokens import next_token_loss
from celeris.tokenizer import ROLES
from tests.core.small import small_model

PAD, EOS, USER, ASSISTANT = 0, 1, 3, 4
PAIRS = [Pair(f"ask {i}", "answer " * (i % 4) + str(i)) for i in range(40)]


@dataclass
class Questions:
    """A source of pairs in memory."""

    train: list[Pair] = field(default_factory=lambda: list(PAIRS))
    title = "questions"

    def pairs(self, split: Split) -> Iterator[Pair]:
        yield from self.train

    def documents(self, split: Split) -> Iterator[str]:
        for prompt, response in self.pairs(split):
            yield from [response] if prompt is None else [prompt, response]

    def fingerprint(self) -> str:
        return repr(self.train)


def questions(folder: Path, length: int = 40, layout=None, builder=None, train=None) -> TextData:
    source = Questions() if train is None else Questions(train)
    layout = layout or Responses(block_length=8)
    return TextData(source, builder or CharTokenizer(roles=True), PairRows(length), layout, folder)


def test_a_row_is_the_pair_and_too_long_ones_are_dropped_and_counted(tmp_path: Path) -> None:
    data = questions(tmp_path, length=24)
    tokenizer, manifest = data.tokenizer, data.packed.manifests["train"]
    fitting = [pair for pair in PAIRS if len(pair.prompt or "") + len(pair.response) + 3 <= 24]
    assert 0 < len(fitting) < len(PAIRS)
    assert (manifest.pairs, manifest.pairs_dropped) == (len(PAIRS), len(PAIRS) - len(fitting))
    assert manifest.tokens_in == manifest.tokens_out + manifest.tokens_dropped
    assert manifest.rows * 24 == manifest.tokens_out + manifest.tokens_pad
    for row, (prompt, response) in zip(data.train[:].tolist(), fitting, strict=True):
        chat = tokenizer.encode_chat([{"role": "user", "content": prompt or ""}])
        expected = [*chat, *tokenizer.encode(response), tokenizer.eos_id]
        assert row == expected + [tokenizer.pad_id] * (24 - len(expected))


def test_plain_text_among_pairs_keeps_its_form_and_begins_at_its_beginning(tmp_path: Path) -> None:
    data = questions(tmp_path, length=24, train=[*PAIRS[:2], Pair(None, "plain text " * 5)])
    rows = data.train[:]
    whole = [i for row in rows[2:] for i in row.tolist()]
    assert data.tokenizer.decode(whole) == "plain text " * 5
    batch = data.bound_layout(rows, torch.arange(len(rows)), seed=0, pad_id=0)
    assert batch.asked is not None and batch.asked.tolist()[2:] == [0] * (len(rows) - 2)
    assert torch.equal(batch.canvas[2].flatten()[:24], rows[2])  # cut by the row: nothing was filled with EOS


def test_a_prompt_cannot_forge_a_role(tmp_path: Path) -> None:
    for builder in (CharTokenizer(roles=True), ByteTokenizer(roles=True)):
        tokenizer = builder(["<|user|> said <|assistant|><|eos|>"])
        ids = tokenizer.encode("<|assistant|>")
        assert not {*tokenizer.role_ids, tokenizer.eos_id} & set(ids)
        assert tokenizer.decode([tokenizer.roles["user"], *ids, tokenizer.roles["assistant"]]) == "<|assistant|>"


@pytest.mark.parametrize("builder", [CharTokenizer(roles=True), ByteTokenizer(roles=True), ByteTokenizer()])
def test_roles_are_stored_with_the_tokenizer(tmp_path: Path, builder) -> None:
    tokenizer = builder(["some text"])
    tokenizer.save(tmp_path)
    back = type(tokenizer).load(tmp_path)
    assert back.roles == tokenizer.roles and back.fingerprint == tokenizer.fingerprint
    assert [back.backend.id_to_token(i) for i in back.role_ids] == list(ROLES.values())[: len(back.roles)]
    assert back.decode(back.encode("some text")) == "some text"


def test_without_roles_a_chat_is_refused() -> None:
    with pytest.raises(CelerisError, match="roles=true"):
        ByteTokenizer()([]).encode_chat([{"role": "user", "content": "x"}])
    with pytest.raises(CelerisError, match="no role 'robot'"):
        ByteTokenizer(roles=True)([]).encode_chat([{"role": "robot", "content": "x"}])


def test_pairs_in_another_layout_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CelerisError, match="layout=responses"):
        questions(tmp_path, layout=AllBlocks(8)).train_loader(2, seed=0, start=0, stop=2)


def rows_of(*pairs: tuple[int, int], length: int = 40) -> Tensor:
    """A row of n prompt tokens and m response tokens for each (n, m), ids from 5 up."""
    rows = torch.zeros(len(pairs), length, dtype=torch.long)
    for row, (n, m) in zip(rows, pairs, strict=True):
        text = torch.arange(n + m) % 7 + 5
        ids = [USER, *text[:n].tolist(), ASSISTANT, *text[n:].tolist(), EOS]
        row[: len(ids)] = torch.tensor(ids)
    return rows


def lay_out(ids: Tensor, first: int = 0, **options) -> tuple:
    layout = Responses(block_length=8, assistant_id=ASSISTANT, eos_id=EOS, **options)
    return layout(ids, torch.arange(first, first + len(ids)), seed=3, pad_id=PAD)


def test_blocks_begin_behind_the_prompt_and_eos_fills_its_block() -> None:
    batch = lay_out(rows_of((3, 5), (10, 12), (1, 7), (2, 8)))
    assert batch.start.tolist() == [[5, 13], [12, 20], [3, 11], [4, 12]]
    assert batch.asked.tolist() == [5, 12, 3, 4]
    tokens = [row.flatten().tolist() for row in batch.canvas]
    ends = [(row.index(EOS), row.count(EOS), row.count(PAD)) for row in tokens]
    assert ends == [(5, 3, 8), (12, 4, 0), (7, 1, 8), (8, 8, 0)]  # the first EOS, all of them, PAD behind the block
    assert batch.ragged and not batch.infill
    assert batch.context.shape[1] >= int(batch.start.max()) + 8


def test_an_empty_response_is_one_block_of_eos() -> None:
    batch = lay_out(rows_of((3, 0)))
    assert batch.canvas.tolist() == [[[EOS] * 8]]


def test_dropping_the_context_depends_on_the_seed_and_the_index_alone() -> None:
    ids = rows_of(*[(3, 5)] * 200)
    batch = lay_out(ids, p_drop=0.3)
    dropped = (batch.start == 0).all(1)
    assert 0.2 < dropped.float().mean() < 0.4 and torch.equal(dropped, (batch.start == 0).any(1))
    assert torch.equal(dropped[50:], (lay_out(ids[50:], first=50, p_drop=0.3).start == 0).all(1))
    assert batch.asked.tolist() == [5] * 200


def test_given_spans_are_never_pad() -> None:
    batch = lay_out(rows_of(*[(3, 5)] * 50), p_given=1.0)
    assert batch.infill and batch.given.any() and not (batch.given & (batch.canvas == PAD)).any()


def test_the_prompt_earns_no_next_token_loss() -> None:
    """No gradient reaches the logits that predict a prompt token or PAD, and every other one counts the same."""
    model, batch = small_model(eos_id=EOS, role_ids=[2, USER, ASSISTANT]), lay_out(rows_of((3, 5), (10, 4)))
    context = model.encode_context(batch.context, (batch.context != PAD).sum(1))
    hidden = context.hidden.detach().requires_grad_()
    context.hidden = hidden
    loss = next_token_loss(model, batch, context)
    (gradient,) = torch.autograd.grad(loss, hidden)
    places = torch.arange(1, batch.context.shape[1] + 1)  # of the token that a state predicts
    real = (batch.context != PAD).sum(1)
    asked = (places >= batch.asked[:, None]) & (places < real[:, None])
    assert torch.equal(gradient.abs().sum(-1) > 0, asked)
    assert loss < 100  # a role that was asked for would cost 1e9


def test_the_llama_baseline_asks_for_responses_only() -> None:
    pytest.importorskip("transformers")
    model = Llama(13, 64, width=16, depth=1, heads=2, mlp_width=16, role_ids=[2, USER, ASSISTANT])
    assert LlamaNextToken()(model, lay_out(rows_of((3, 5), (10, 4))), 0).loss < 100


def test_roles_are_never_written() -> None:
    model = small_model(role_ids=[2, USER, ASSISTANT])
    assert model.forbidden == [0, 2, USER, ASSISTANT]
    context = model.encode_context(rows_of((3, 5))[:, :5])
    assert (model.next_token_logits(context)[..., [2, USER, ASSISTANT]] < -1e8).all()


def test_a_row_in_a_batch_of_other_prompts_is_the_row_alone() -> None:
    """All of the objective, noise included: prompts of different lengths, responses of as many blocks."""
    model = small_model(eos_id=EOS, role_ids=[2, USER, ASSISTANT])
    objective = CrossEntropy(LevelMixture([PerToken()], [1.0]), self_conditioning=1.0)
    ids = rows_of((3, 5), (10, 7), (1, 2), (20, 6))
    together, texts = 0.0, []
    for row in range(len(ids)):
        alone = lay_out(ids[row : row + 1], first=row)
        texts.append(float(objective(model, alone, 5).terms["loss_diffusion"]))
        together += texts[-1] * alone.canvas.numel() / (len(ids) * alone.canvas.shape[2])
    whole = objective(model, lay_out(ids), 5).terms["loss_diffusion"]
    assert float(whole) == pytest.approx(together, abs=1e-5)
    assert len({round(value, 4) for value in texts}) == len(texts)
