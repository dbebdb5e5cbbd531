"""A baseline of this package as the judge of texts: what an autoregressive model of the same data thinks of them."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from celeris.baselines import Llama, llama_nats
from celeris.errors import CelerisError
from celeris.evaluation.scorer import ScoredTexts
from celeris.evaluation.units import NegativeLogLikelihood, text_size
from celeris.tokenizer import TextTokenizer


class LlamaJudge:
    """Exact −log p of each text under a Llama that `train.py` made; a `celeris.evaluation.scorer.Scorer`.

    Args:
        checkpoint: export folder, or the run that holds it; nothing is read before the first score.
        batch_size: texts of one forward pass.
    """

    def __init__(self, checkpoint: str | Path, batch_size: int = 32):
        path = Path(checkpoint).expanduser()
        self.folder = path / "export" if (path / "export").is_dir() else path
        self.batch_size = batch_size

    @cached_property
    def model(self) -> Llama:
        return Llama.from_pretrained(self.folder)

    @property
    def tokenizer(self) -> TextTokenizer:
        assert self.model.tokenizer is not None
        return self.model.tokenizer

    @property
    def name(self) -> str:
        return f"Llama {self.model.weight_hash} ({self.model.num_parameters:,} parameters)"

    @property
    def definition(self) -> str:
        return f"nats of the whole text under {self.name}, its first token given the start token, EOS not counted"

    @property
    def scoring(self) -> dict[str, Any]:
        return {
            "scorer": self.name,
            "weights": self.model.weight_hash,
            "tokenizer": self.tokenizer.fingerprint,
            "window": self.model.max_length,
            "bos": "PAD stands in front of each text",
            "dtype": "float32",
        }

    def tokenize(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def score(self, texts: Sequence[str]) -> ScoredTexts:
        """Score each text by itself; empty ones are skipped (None).

        Raises:
            CelerisError: a text that is longer than the window, or the export cannot be read.
        """
        sequences = [self.tokenize(text) if text.strip() else [] for text in texts]
        longest = max(map(len, sequences), default=0)
        if longest > self.model.max_length:
            raise CelerisError(
                f"A text has {longest} tokens and the judge's window {self.model.max_length}; take shorter texts or "
                "another judge."
            )
        rows = torch.full((len(texts), max(longest, 1)), self.model.pad_id)
        for row, ids in zip(rows, sequences, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        nats = llama_nats(self.model, rows, batch_size=self.batch_size).tolist()
        records: list[NegativeLogLikelihood | None] = []
        for text, ids, value in zip(texts, sequences, nats, strict=True):
            size = text_size([text])
            records.append(NegativeLogLikelihood(value, len(ids), size.characters, size.bytes) if ids else None)
        return ScoredTexts(records, sequences)
