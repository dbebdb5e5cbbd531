"""The two streams: cache exactness, no leak from PAD, from the future or from the neighbours; files."""

import json

import pytest
import torch

from celeris.batch import Batch
from celeris.denoiser import TableInput, TokenInput
from celeris.denoiser.rotary import rotary
from celeris.embedding import TokenEmbedding
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.noise.levels import LevelMixture, PerToken, Together
from celeris.objectives import CrossEntropy
from celeris.rounding import evidence
from tests.core.small import small_model


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(*shape, seed=0, vocab=13):
    return torch.randint(2, vocab, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("mixing", [None, (3, 2)])
def test_context_in_pieces_equals_context_at_once(mixing):
    model = small_model(mixing=mixing)
    ids, z = tokens(2, 20), randn(2, 8, 8)
    whole = model.encode_context(ids)
    pieces = None
    for part in ids.split([5, 1, 8, 6], 1):
        pieces = model.encode_context(part, past=pieces)
    assert torch.allclose(model.denoise(z, 0.6, whole).logits, model.denoise(z, 0.6, pieces).logits, atol=1e-5)
    assert torch.allclose(model.next_token_logits(whole), model.next_token_logits(pieces)[:, :20], atol=1e-5)


@pytest.mark.parametrize("mixing", [None, (3, 2)])
def test_a_short_prompt_is_the_same_beside_a_long_one(mixing):
    model = small_model(mixing=mixing)
    short, long, block, z = tokens(1, 3), tokens(1, 12, seed=1), tokens(2, 8, seed=2), randn(2, 8, 8)
    alone = model.encode_context(block[:1], past=model.encode_context(short))
    together = torch.full((2, 12), 0)
    together[0, :3], together[1] = short[0], long[0]
    both = model.encode_context(together, torch.tensor([3, 12]))
    both = model.encode_context(block, past=both)
    assert torch.allclose(model.denoise(z, 0.5, both).logits[:1], model.denoise(z[:1], 0.5, alone).logits, atol=1e-5)


@pytest.mark.parametrize("mixing", [None, (3, 2)])
def test_all_blocks_at_once_equal_one_block_at_a_time(mixing):
    model = small_model(mixing=mixing)
    ids, z, gamma = tokens(2, 24), randn(2, 3, 8, 8), randn(2, 3, 8, seed=4)
    start = torch.tensor([0, 8, 16]).expand(2, 3)
    together = model.predict(z, gamma, model.encode_context(ids), start).logits
    for n in range(3):
        context = model.encode_context(ids[:, : 8 * n])
        alone = model.predict(z[:, n : n + 1], gamma[:, n : n + 1], context, start[:, n : n + 1]).logits
        assert torch.allclose(together[:, n], alone[:, 0], atol=1e-5)


def test_the_context_is_causal_and_the_canvas_sees_all_of_itself():
    model = small_model()
    ids = tokens(1, 12)
    changed = ids.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 13
    before, after = (model.next_token_logits(model.encode_context(x)) for x in (ids, changed))
    assert torch.equal(before[:, :7], after[:, :7]) and not torch.allclose(before[:, 7:], after[:, 7:])
    z = randn(1, 8, 8).requires_grad_()
    model.denoise(z, 0.5).logits[0, 3].sum().backward()
    assert (z.grad[0].abs().sum(-1) > 0).all()


def test_pad_is_invisible():
    """Real canvas positions alone, and with PAD beside them holding any latent: same logits, no gradient into PAD."""
    model = small_model()
    context, start = model.encode_context(tokens(1, 4)), torch.full((1, 1), 4)
    z, gamma = randn(1, 1, 5, 8), randn(1, 1, 5, seed=1)
    alone = model.predict(z, gamma, context, start).logits
    padded = torch.cat([z, randn(1, 1, 3, 8, seed=2)], 2).requires_grad_()
    valid = torch.tensor([[[True] * 5 + [False] * 3]])
    out = model.predict(padded, torch.cat([gamma, gamma[..., :3]], 2), context, start, None, None, valid).logits[
        :, :, :5
    ]
    assert torch.allclose(out, alone, atol=1e-5)
    out.sum().backward()
    assert (padded.grad[0, 0, 5:] == 0).all()


def test_loss_does_not_depend_on_padding_and_given_positions_earn_none():
    model = small_model(vocab_size=13)
    objective = CrossEntropy(LevelMixture([Together(), PerToken()], [1, 1]), self_conditioning=0.0)
    ids, index = tokens(4, 8), torch.arange(4)
    canvas = ids[:, None]
    zero, none = torch.zeros(4, 1, dtype=torch.long), torch.zeros(4, 1, 8, dtype=torch.bool)
    full = objective(model, Batch(ids[:, :0], canvas, zero, none, index), seed=3)
    given = none.clone()
    given[:, :, 2:5] = True
    partly = objective(model, Batch(ids[:, :0], canvas, zero, given, index), seed=3)
    assert not torch.allclose(full.loss, partly.loss)
    everything = objective(model, Batch(ids[:, :0], canvas, zero, torch.ones_like(none), index), seed=3)
    assert everything.loss == 0
    empty_row = canvas.clone()
    empty_row[3] = 0
    some = objective(model, Batch(ids[:, :0], empty_row, zero, none, index), seed=3)
    assert torch.isfinite(some.loss)
    some.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_embedding_norm_is_fixed_and_scale_free():
    table = TokenEmbedding(50, 16)
    assert torch.allclose(table.table.square().mean(-1), torch.ones(50), atol=1e-5)
    model = small_model()
    objective = CrossEntropy(LevelMixture([Together()], [1]), self_conditioning=0.0)
    ids = tokens(4, 8)
    batch = Batch(
        ids, ids[:, None], torch.zeros(4, 1, dtype=torch.long), torch.zeros(4, 1, 8, dtype=torch.bool), torch.arange(4)
    )
    before = objective(model, batch, seed=0).loss
    with torch.no_grad():
        model.embedding.weight.mul_(10)
    assert torch.allclose(objective(model, batch, seed=0).loss, before, atol=1e-4)


def test_loss_parts_are_what_they_are_called():
    """Random logits cannot beat log V by much; the exact evidence alone decides at low noise (field case A3)."""
    model = small_model(vocab_size=64, dim=32)
    model.rounding.project.weight.data.zero_()
    model.rounding.project.bias.data.zero_()
    ids = torch.randint(2, 64, (8, 16))
    x0 = model.embedding(ids)[:, None]
    context, start = model.denoiser.empty(8, ids.device), torch.zeros(8, 1, dtype=torch.long)
    for gamma, low, high in ((-3.0, 0.0, 0.05), (30.0, 4.0, 4.3)):
        level = torch.full((8, 1, 16), gamma)
        z = torch.sigmoid(-level).sqrt()[..., None] * x0 + torch.sigmoid(level).sqrt()[..., None] * torch.randn_like(x0)
        logits = model.predict(z, level, context, start).logits[:, 0]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        assert low <= loss <= high


def test_rotary_angles_survive_bf16():
    exact = rotary(torch.tensor([[1857]]), 64)
    model = small_model().to(torch.bfloat16)
    assert model.denoiser.token_in.weight.dtype == torch.bfloat16
    assert exact.cos.dtype == torch.float32
    angle = 1857 * 10_000.0 ** -(torch.arange(0, 64, 2) / 64).double()
    assert torch.allclose(exact.cos[0, 0, 0].double(), angle.cos(), atol=1e-3)


def test_broken_exports_are_one_sentence(tmp_path, exported):
    with pytest.raises(CelerisError, match="No checkpoint folder"):
        DiffusionLM.from_pretrained(tmp_path / "nowhere")
    config = exported / "config.json"
    text = config.read_text()
    config.write_text(text[:40])
    with pytest.raises(CelerisError, match="not a readable export"):
        DiffusionLM.from_pretrained(exported)
    record = json.loads(text)
    record["model"]["denoiser"]["depth"] = 3
    config.write_text(json.dumps(record))
    with pytest.raises(CelerisError, match="do not fit"):
        DiffusionLM.from_pretrained(exported)
    record["model"]["_target_"] = "os.system"
    config.write_text(json.dumps(record))
    with pytest.raises(CelerisError, match="outside the package"):
        DiffusionLM.from_pretrained(exported)
    config.write_text(text)
    weights = exported / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CelerisError, match="corrupted"):
        DiffusionLM.from_pretrained(exported)


def test_export_round_trip(exported):
    first, second = DiffusionLM.from_pretrained(exported), DiffusionLM.from_pretrained(exported)
    assert first.weight_hash == second.weight_hash == first.info["weight_hash"]
    z = randn(1, 8, 8)
    assert torch.equal(first.denoise(z, 0.5).logits, second.denoise(z, 0.5).logits)
    assert first.tokenizer.decode(first.tokenizer.encode("abba")) == "abba"


@pytest.mark.parametrize("reads", [TableInput(8, 6), TokenInput(13, 6)])
def test_a_certain_mean_is_the_known_token(reads):
    """Also under autocast, where both streams must come out in one precision."""
    ids, table = tokens(3, 5), randn(13, 8)
    certain = torch.nn.functional.one_hot(ids, 13).float()
    torch.testing.assert_close(reads.mean(certain, table), reads.known(ids, table))
    with torch.autocast("cpu", torch.bfloat16):
        mean, known = reads.mean(certain, table), reads.known(ids, table)
    assert mean.dtype == known.dtype == torch.bfloat16
    torch.testing.assert_close(mean, known, atol=0.05, rtol=0.05)


def test_a_given_position_is_read_as_its_token():
    """Whatever the noise level says, and whatever the input of tokens is made of."""
    for reads in (None, TokenInput(13, 32)):
        model = small_model(token_in=reads)
        ids = tokens(1, 1, 8)
        z, given = model.embedding(ids), torch.ones(1, 1, 8, dtype=torch.bool)
        own = evidence(z, torch.full((1, 1, 8), 9.0), model.embedding.table)
        guess = model._guess(z, own, given, model.embedding.table)
        torch.testing.assert_close(guess, model.denoiser.token_in.known(ids, model.embedding.table))
