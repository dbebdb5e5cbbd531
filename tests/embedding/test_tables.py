"""What each table promises of its rows, and what training may do with them."""

import math

import pytest
import torch
from torch.optim import AdamW

from celeris.denoiser import Transformer
from celeris.embedding import FreeEmbedding, FrozenEmbedding, TokenEmbedding
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.noise import LossCDFSchedule
from celeris.rounding import SoftmaxHead, evidence
from celeris.training.optim.groups import parameter_roles

V, D = 9, 6


def model_with(embedding, posterior_input=True, with_evidence=True) -> DiffusionLM:
    return DiffusionLM(
        V,
        embedding,
        LossCDFSchedule(-4.0, 6.0),
        Transformer(D, 16, 1, 2, cond_dim=8),
        max_length=16,
        block_length=8,
        head=SoftmaxHead(16, V, evidence=with_evidence),
        posterior_input=posterior_input,
    )


@pytest.mark.parametrize("table", [TokenEmbedding, FrozenEmbedding])
def test_rows_have_norm_sqrt_d_whatever_the_weights_are(table):
    embedding = table(V, D, seed=3)
    assert embedding.equal_norms
    torch.testing.assert_close(embedding.table.norm(dim=-1), torch.full((V,), math.sqrt(D)))
    ids = torch.tensor([[0, 4], [8, 4]])
    torch.testing.assert_close(embedding(ids), embedding.table[ids])


@pytest.mark.parametrize("table", [TokenEmbedding, FrozenEmbedding, FreeEmbedding])
def test_an_empty_table_is_refused(table):
    with pytest.raises(CelerisError, match="0 rows of width 6"):
        table(0, D)


def test_a_free_table_is_its_weights_and_says_so():
    embedding = FreeEmbedding(V, D)
    with torch.no_grad():
        embedding.weight.mul_(3)
    torch.testing.assert_close(embedding.table, embedding.weight)
    assert not embedding.equal_norms


def test_the_evidence_is_the_posterior_only_where_norms_are_equal():
    """log N(z; alpha·e_v, sigma²) differs from the evidence by a constant over v for equal norms, and only then."""
    z, gamma = torch.randn(D, generator=torch.Generator().manual_seed(0)), torch.tensor(0.5)
    alpha, sigma2 = torch.sigmoid(-gamma).sqrt(), torch.sigmoid(gamma)
    for embedding, exact in [(TokenEmbedding(V, D), True), (FreeEmbedding(V, D), False)]:
        table = embedding.table.detach()
        true = (-(z - alpha * table).square().sum(-1) / (2 * sigma2)).softmax(-1)
        assert torch.allclose(evidence(z, gamma, table).softmax(-1), true, atol=1e-5) is exact


@pytest.mark.parametrize(("posterior_input", "with_evidence"), [(True, False), (False, True)])
def test_a_model_refuses_evidence_on_unequal_norms(posterior_input, with_evidence):
    with pytest.raises(CelerisError, match="FreeEmbedding has rows of unequal norms"):
        model_with(FreeEmbedding(V, D), posterior_input, with_evidence)
    model_with(FreeEmbedding(V, D), posterior_input=False, with_evidence=False)


def test_a_frozen_table_is_no_parameter_and_does_not_move():
    model = model_with(FrozenEmbedding(V, D))
    roles = parameter_roles(model)
    assert roles.embedding == [] and model.device == torch.device("cpu")
    before = model.embedding.table.clone()
    optimizer = AdamW([p for role in roles for p in role], lr=0.1)
    z = model.embedding(torch.randint(V, (2, 8), generator=torch.Generator().manual_seed(0)))
    model.denoise(z, 0.5).logits[..., 3].mean().backward()
    optimizer.step()
    assert torch.equal(model.embedding.table, before)


def test_a_filled_table_is_part_of_the_weights():
    embedding = FrozenEmbedding(V, D)
    rows = torch.randn(V, D, generator=torch.Generator().manual_seed(1))
    embedding.fill(7 * rows)
    torch.testing.assert_close(embedding.table, rows / rows.norm(dim=-1, keepdim=True) * math.sqrt(D))
    other = FrozenEmbedding(V, D, seed=5)
    other.load_state_dict(embedding.state_dict())
    assert torch.equal(other.table, embedding.table)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows[:-1], r"shape \(8, 6\)"),
        (lambda rows: rows.index_fill(0, torch.tensor([2]), 0.0), "Row 2 of the table is zero"),
        (lambda rows: rows.index_fill(0, torch.tensor([4]), math.nan), "Row 4 of the table is zero or not finite"),
        (lambda rows: torch.cat([rows[:-1], 2 * rows[:1]]), "Two tokens have the same row"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(change, says):
    rows = torch.randn(V, D, generator=torch.Generator().manual_seed(1))
    with pytest.raises(CelerisError, match=says):
        FrozenEmbedding(V, D).fill(change(rows))
