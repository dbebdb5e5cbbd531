"""Fine-tuning from a checkpoint: full, with a low-rank change, and with roles that its tokenizer did not have."""

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from celeris.baselines import MaskedLM
from celeris.data.tokenizers import ByteTokenizer, CharTokenizer
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.model import DiffusionLM
from celeris.tasks.fine_tune import checkpoint_model
from celeris.tokenizer import TextTokenizer, with_roles
from celeris.training.assembled import assembled
from celeris.training.low_rank import low_rank
from celeris.training.optim import adamw
from celeris.training.vocabulary import with_new_roles
from tests.tasks.conftest import Command, Workplace, quoted

TEXT = "fellow citizens of the senate"


def spec(vocab_size: int) -> dict:
    return {
        "_target_": "celeris.model.DiffusionLM",
        "vocab_size": vocab_size,
        "unk_id": 2,
        "max_length": 64,
        "block_length": 8,
        "embedding": {"_target_": "celeris.embedding.TokenEmbedding", "vocab_size": vocab_size, "dim": 8},
        "schedule": {"_target_": "celeris.noise.LossCDFSchedule", "gamma_min": -4, "gamma_max": 9},
        "denoiser": {
            "_target_": "celeris.denoiser.Transformer",
            **{"dim": 8, "width": 32, "depth": 2, "heads": 2, "cond_dim": 16, "mixing": [3, 2]},
            "token_in": {"_target_": "celeris.denoiser.TokenInput", "vocab_size": vocab_size, "width": 32},
        },
    }


def checkpoint(roles: bool = False) -> DiffusionLM:
    """A model whose gates and heads are off zero, so that every weight matters."""
    tokenizer = CharTokenizer(roles=roles)([TEXT])
    torch.manual_seed(0)
    given = spec(tokenizer.vocab_size)
    model = DiffusionLM.from_spec(given | ({"role_ids": tokenizer.role_ids} if roles else {}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    model.tokenizer = tokenizer
    return model.eval()


def outputs(model: DiffusionLM, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What both streams say about the first `tokens` tokens."""
    assert model.tokenizer is not None
    ids = torch.tensor([model.tokenizer.encode(TEXT)])
    context = model.encode_context(ids)
    z = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        canvas = model.denoise(z, 0.6, context).logits
        return model.next_token_logits(context)[..., :tokens].detach(), canvas[..., :tokens]


def same(one, two, tolerance: float = 1e-5) -> None:
    for a, b in zip(one, two, strict=True):
        assert torch.allclose(a.softmax(-1), b.softmax(-1), atol=tolerance)


def settings(folder: Path, layout: str = "Responses", length: int = 32) -> OmegaConf:
    return OmegaConf.create(
        {
            "init_from": str(folder),
            "length": length,
            "block_length": 4,
            "seed": 7,
            "paths": {"runs_dir": "nowhere"},
            "layout": {"_target_": f"celeris.data.layouts.{layout}", "block_length": 4},
        }
    )


def test_before_its_first_step_it_is_the_checkpoint(tmp_path: Path) -> None:
    model = checkpoint(roles=True)
    model.save_pretrained(tmp_path)
    start = checkpoint_model(settings(tmp_path))
    assert isinstance(start, DiffusionLM) and start.training and start.weight_hash == model.weight_hash
    assert start.block_length == start.spec["block_length"] == 4
    count = model.vocab_size
    same(outputs(start.eval(), count), outputs(model, count), 0.0)


def test_new_roles_change_nothing_that_it_knew(tmp_path: Path) -> None:
    model = checkpoint()
    assert model.tokenizer is not None
    model.save_pretrained(tmp_path)
    start = checkpoint_model(settings(tmp_path)).eval()
    assert isinstance(start, DiffusionLM) and start.tokenizer is not None
    assert start.tokenizer.encode(TEXT) == model.tokenizer.encode(TEXT)
    assert start.role_ids == [model.vocab_size + k for k in range(3)]
    same(outputs(start, model.vocab_size), outputs(model, model.vocab_size))
    assert (outputs(start, start.vocab_size)[0][..., start.role_ids] < -1e8).all()
    start.save_pretrained(tmp_path / "again")
    again = DiffusionLM.from_pretrained(tmp_path / "again")
    assert again.tokenizer is not None and again.tokenizer.roles == start.tokenizer.roles
    chat = [{"role": "user", "content": "the <|user|>"}]
    assert again.tokenizer.encode_chat(chat) == start.tokenizer.encode_chat(chat)
    assert sum(i in again.role_ids for i in again.tokenizer.encode_chat(chat)) == 2


def test_plain_text_needs_no_roles(tmp_path: Path) -> None:
    checkpoint().save_pretrained(tmp_path)
    start = checkpoint_model(settings(tmp_path, layout="AllBlocks"))
    assert start.role_ids == []


@pytest.mark.parametrize("builder", [ByteTokenizer(), CharTokenizer()])
def test_a_tokenizer_with_roles_added_writes_texts_as_before(builder, tmp_path: Path) -> None:
    plain = builder([TEXT])
    more = with_roles(plain)
    more.save(tmp_path)
    for tokenizer in (more, TextTokenizer.load(tmp_path)):
        assert tokenizer.encode(TEXT + "<|user|>") == plain.encode(TEXT + "<|user|>")
        assert tokenizer.vocab_size == plain.vocab_size + 3
        assert tokenizer.decode([*tokenizer.role_ids, *tokenizer.encode(TEXT)]) == TEXT


def test_rows_beyond_the_window_and_missing_checkpoints_are_refused(tmp_path: Path) -> None:
    checkpoint().save_pretrained(tmp_path)
    with pytest.raises(CelerisError, match="set length=64"):
        checkpoint_model(settings(tmp_path, length=65))
    with pytest.raises(CelerisError, match="init_from="):
        checkpoint_model(settings(tmp_path / "nothing"))


def test_a_masked_model_is_told_why_not() -> None:
    model = MaskedLM(20, 16, 16, 1, 2)
    model.tokenizer = CharTokenizer()([TEXT])
    with pytest.raises(CelerisError, match="roles=true"):
        with_new_roles(model)


def trained_low_rank() -> tuple[DiffusionLM, dict[str, torch.Tensor]]:
    """A low-rank change after three steps, and all weights before."""
    model = low_rank(checkpoint(roles=True), rank=2, alpha=4.0)
    before = {name: value.detach().clone() for name, value in model.state_dict().items()}
    optimizer = adamw(model, lr=0.05)
    for _ in range(3):
        ids = torch.tensor([model.tokenizer.encode(TEXT)])
        context = model.encode_context(ids)
        canvas = model.denoise(torch.ones(1, 8, 8), 0.6, context).logits
        loss = model.next_token_logits(context)[..., 7].sum() + canvas[..., 8].sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), before


def test_a_low_rank_change_starts_at_nothing_and_trains_only_itself() -> None:
    model = checkpoint(roles=True)
    same(outputs(low_rank(checkpoint(roles=True), rank=2), model.vocab_size), outputs(model, model.vocab_size), 0.0)
    changed, before = trained_low_rank()
    moved = {name for name, value in changed.state_dict().items() if not torch.equal(value, before[name])}
    assert moved and all(name.endswith((".0.up", ".0.down")) for name in moved)
    trainable = [name for name, p in changed.named_parameters() if p.requires_grad]
    assert set(trainable) == moved


def test_an_export_is_plain_and_computes_the_same(tmp_path: Path) -> None:
    changed, _ = trained_low_rank()
    plain = assembled(changed)
    assert plain is not None
    assert plain.state_dict().keys() == checkpoint(roles=True).state_dict().keys()
    plain.save_pretrained(tmp_path)
    back = DiffusionLM.from_pretrained(tmp_path)
    count = changed.vocab_size
    same(outputs(back, count), outputs(changed, count))
    for a, b in zip(outputs(changed, count), outputs(checkpoint(roles=True), count), strict=True):
        assert not torch.allclose(a, b, atol=1e-2)
    assert assembled(back) is back


@pytest.mark.slow
def test_from_a_run_to_a_run(command: Command, workplace: Workplace) -> None:
    """experiment=sft on the byte model of a debug run, with a low-rank change: new roles, plain export."""
    pytest.importorskip("reasoning_gym")
    first = command("train", *workplace.training, "tokenizer=byte", "run_id=base")
    assert first.code == 0, first.err
    base = workplace.runs / "debug" / "base"
    words = [
        *("experiment=sft", "adapter=low_rank", "data=number_sorting", "data.source.size=60", "data.source.val_size=9"),
        *("length=32", "block_length=8", "trainer.max_steps=2", "run_id=tuned", "logger=none", *workplace.words),
        f"init_from={quoted(str(base))}",
    ]
    second = command("train", *words)
    assert second.code == 0, second.err
    before, after = (LanguageModel.from_pretrained(run / "export") for run in (base, workplace.runs / "sft" / "tuned"))
    assert after.vocab_size == before.vocab_size + 3 and after.info["init_from"]["run"] == "debug/base"
    assert after.tokenizer is not None and after.tokenizer.role_ids == after.role_ids
    old, new = before.state_dict(), after.state_dict()
    assert old.keys() == new.keys()
    assert torch.equal(new["rounding.project.weight"][: before.vocab_size], old["rounding.project.weight"])
