import pytest

from celeris.data.tokenizers import CharTokenizer
from celeris.model import DiffusionLM


@pytest.fixture
def exported(tmp_path):
    """A tiny export with a character tokenizer."""
    tokenizer = CharTokenizer()(["abc d.\n"])
    vocab = tokenizer.vocab_size
    spec = {
        "_target_": "celeris.model.DiffusionLM",
        "vocab_size": vocab,
        "max_length": 64,
        "block_length": 8,
        "unk_id": tokenizer.unk_id,
        "embedding": {"_target_": "celeris.embedding.TokenEmbedding", "vocab_size": vocab, "dim": 8},
        "schedule": {"_target_": "celeris.noise.LossCDFSchedule", "gamma_min": -4, "gamma_max": 9},
        "denoiser": {
            "_target_": "celeris.denoiser.Transformer", "dim": 8, "width": 32, "depth": 2, "heads": 2, "mixing": [3, 2],
        },
    }  # fmt: skip
    model = DiffusionLM.from_spec(spec)
    model.tokenizer = tokenizer
    return model.save_pretrained(tmp_path / "export", {"step": 0})
