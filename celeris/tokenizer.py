"""The tokenizer of a model: an HF `tokenizers` object plus the ids of PAD, EOS and (character tokenizer only) UNK."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from celeris.errors import CelerisError

PAD, EOS, UNK = "<|pad|>", "<|eos|>", "<|unk|>"


def character_backend(characters: list[str]) -> Tokenizer:
    """One token a Unicode character; PAD = 0, EOS = 1, UNK = 2, then `characters` in the order given.

    UNK decodes to one U+FFFD, so a decoded text has as many characters as the text had.
    """
    vocabulary = {token: i for i, token in enumerate([PAD, EOS, UNK, *characters])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")  # type: ignore[assignment]
    backend.decoder = decoders.Sequence([decoders.Replace(UNK, "\ufffd"), decoders.Fuse()])  # type: ignore[assignment]
    backend.add_special_tokens([PAD, EOS, UNK])
    return backend


@dataclass
class TextTokenizer:
    """Text to ids and back, exactly.

    Special tokens are never added by `encode`, and their names inside a text are ordinary characters, so no text can
    forge an EOS.

    Attributes:
        backend: what `tokenizer.json` holds.
        pad_id, eos_id, unk_id: ids of the special tokens; `unk_id` is None when every text can be written.
    """

    backend: Tokenizer
    pad_id: int
    eos_id: int
    unk_id: int | None = None
    _table: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.backend.no_padding()
        self.backend.no_truncation()
        # With this flag special tokens are *not* recognised in the text. It is not stored in tokenizer.json.
        self.backend.encode_special_tokens = True
        self._table = _character_table(self.backend)

    @property
    def vocab_size(self) -> int:
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def fingerprint(self) -> str:
        """sha256 of `tokenizer.json` and the special ids."""
        ids = f"\n{self.pad_id} {self.eos_id} {self.unk_id}"
        return hashlib.sha256((self.backend.to_str() + ids).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, no special tokens added.

        Raises:
            CelerisError: the text holds half of a surrogate pair, which no encoding of Unicode can write.
        """
        return self.encode_arrays([text])[0].tolist()

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [ids.tolist() for ids in self.encode_arrays(texts)]

    def encode_arrays(self, texts: list[str]) -> list[np.ndarray]:
        """As `encode_batch`, as one int64 array (length of the text in tokens) a text: the form packing needs."""
        for text in texts:
            _refuse_surrogates(text)
        if self._table is not None:
            return [self._look_up(text) for text in texts]
        encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.asarray(encoding.ids, dtype=np.int64) for encoding in encodings]

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`; PAD and EOS are dropped."""
        kept = [int(i) for i in ids if i != self.pad_id and i != self.eos_id]
        return self.backend.decode(kept, skip_special_tokens=False)

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json`, and `tokenizer_config.json` with the names of the special tokens (HF's form)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.backend.save(str(folder / "tokenizer.json"))
        names = {"pad_token": self.pad_id, "eos_token": self.eos_id, "unk_token": self.unk_id}
        config: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast"}
        config["clean_up_tokenization_spaces"] = False
        config.update({name: self.backend.id_to_token(i) for name, i in names.items() if i is not None})
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> "TextTokenizer":
        """Read what `save` wrote; without `tokenizer_config.json` the special tokens have this package's names.

        Raises:
            CelerisError: no readable `tokenizer.json` in `folder`, or it has no PAD or EOS token.
        """
        folder = Path(folder)
        file, config_file = folder / "tokenizer.json", folder / "tokenizer_config.json"
        if not file.is_file():
            raise CelerisError(f"There is no tokenizer.json in {folder}; point to a folder that holds one.")
        try:
            backend = Tokenizer.from_file(str(file))
            config = json.loads(config_file.read_text(encoding="utf-8")) if config_file.is_file() else {}
        except Exception as error:  # `tokenizers` raises bare Exception
            raise CelerisError(f"{folder} does not hold a readable tokenizer ({error}); copy it again.") from error
        pad_id = backend.token_to_id(config.get("pad_token", PAD))
        eos_id = backend.token_to_id(config.get("eos_token", EOS))
        if pad_id is None or eos_id is None:
            raise CelerisError(f"The tokenizer in {folder} has no PAD or no EOS; name both in tokenizer_config.json.")
        return cls(backend, pad_id, eos_id, backend.token_to_id(config.get("unk_token", UNK)))

    def _look_up(self, text: str) -> np.ndarray:
        assert self._table is not None
        points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        return self._table[np.minimum(points, len(self._table) - 1)]


def _character_table(backend: Tokenizer) -> np.ndarray | None:
    """id of every code point if `backend` is a character tokenizer, else None; the last entry is UNK.

    The table is used only when the stored tokenizer is, to the letter, what `character_backend` makes of its own
    vocabulary; then looking code points up is the same function, some fifty times faster.
    """
    vocabulary = backend.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if tokens[:3] != [PAD, EOS, UNK] or any(len(token) != 1 for token in tokens[3:]):
        return None
    if backend.to_str() != character_backend(tokens[3:]).to_str():
        return None
    table = np.full(max([ord(c) for c in tokens[3:]], default=0) + 2, vocabulary[UNK], dtype=np.int64)
    for character in tokens[3:]:
        table[ord(character)] = vocabulary[character]
    return table


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        point = ord(text[error.start])
        raise CelerisError(
            f"The text holds U+{point:04X} at position {error.start}, half of a surrogate pair; remove it."
        ) from None
