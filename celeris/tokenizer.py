"""The tokenizer of a model: an HF `tokenizers` object plus the ids of PAD, EOS, UNK and, where it has them, roles."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from celeris.errors import CelerisError

PAD, EOS, UNK = "<|pad|>", "<|eos|>", "<|unk|>"
ROLES = {role: f"<|{role}|>" for role in ("system", "user", "assistant")}
"""Role → the token that begins a message of it."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""What `encode_chat` does, in the form that Hugging Face keeps beside a tokenizer."""


def character_backend(characters: list[str], roles: bool = False) -> Tokenizer:
    """One token a Unicode character; PAD = 0, EOS = 1, UNK = 2, then the roles if wanted, then `characters` in order.

    UNK decodes to one U+FFFD, so a decoded text has as many characters as the text had.
    """
    special = [PAD, EOS, UNK, *(ROLES.values() if roles else ())]
    vocabulary = {token: i for i, token in enumerate([*special, *characters])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")  # type: ignore[assignment]
    backend.decoder = decoders.Sequence([decoders.Replace(UNK, "\ufffd"), decoders.Fuse()])  # type: ignore[assignment]
    backend.add_special_tokens(special)
    return backend


@dataclass
class TextTokenizer:
    """Text to ids and back, exactly.

    Special tokens are never added by `encode`, and their names inside a text are ordinary characters, so no text can
    forge an EOS or a role.

    Attributes:
        backend: what `tokenizer.json` holds.
        pad_id, eos_id, unk_id: ids of the special tokens; `unk_id` is None when every text can be written.
        roles: role → id of the token that begins its messages; empty for a tokenizer of plain text.
    """

    backend: Tokenizer
    pad_id: int
    eos_id: int
    unk_id: int | None = None
    roles: dict[str, int] = field(default_factory=dict)
    _table: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.backend.no_padding()
        self.backend.no_truncation()
        # With this flag special tokens are *not* recognised in the text. It is not stored in tokenizer.json.
        self.backend.encode_special_tokens = True
        self._table = _character_table(self.backend)

    def __reduce__(self) -> tuple:
        """Copies for other processes are made anew: a backend that is copied forgets `encode_special_tokens`."""
        return _restored, (self.backend.to_str(), self.pad_id, self.eos_id, self.unk_id, self.roles)

    @property
    def role_ids(self) -> list[int]:
        return list(self.roles.values())

    @property
    def looks_up(self) -> bool:
        """Whether this is a character tokenizer: every character has its own id, whatever stands around it."""
        return self._table is not None

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

    def encode_chat(self, messages: Sequence[Mapping[str, str]], cue: bool = True) -> list[int]:
        """Ids of a conversation: the role's token and the content of each message, then the assistant's token.

        Args:
            messages: {"role": "system" | "user" | "assistant", "content": text}. Names of special tokens inside a
                content are ordinary characters.
            cue: end with the assistant's token, so that what follows is its answer.

        Raises:
            CelerisError: the tokenizer has no roles, or a message is not of that form.
        """
        ids: list[int] = []
        for message in messages:
            role, content = message.get("role"), message.get("content")
            if not isinstance(content, str) or not isinstance(role, str):
                raise CelerisError(f'A message is {{"role": …, "content": text}}, not {dict(message)!r}.')
            ids += [self.role_id(role), *self.encode(content)]
        return [*ids, self.role_id("assistant")] if cue else ids

    def role_id(self, role: str) -> int:
        """The token that begins a message of `role`.

        Raises:
            CelerisError: there is none.
        """
        if role in self.roles:
            return self.roles[role]
        if not self.roles:
            raise CelerisError(
                "This tokenizer has no roles, so it cannot write a conversation; train with tokenizer.roles=true."
            )
        raise CelerisError(f"There is no role {role!r}; the roles are {', '.join(self.roles)}.")

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`; PAD, EOS and roles are dropped."""
        silent = {self.pad_id, self.eos_id, *self.role_ids}
        kept = [int(i) for i in ids if int(i) not in silent]
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
        if self.roles:
            config["additional_special_tokens"] = [self.backend.id_to_token(i) for i in self.role_ids]
            config["chat_template"] = CHAT_TEMPLATE
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
        named = config.get("additional_special_tokens", [])
        ids = {role: backend.token_to_id(token) for role, token in ROLES.items() if token in named}
        roles = {role: i for role, i in ids.items() if i is not None}
        return cls(backend, pad_id, eos_id, backend.token_to_id(config.get("unk_token", UNK)), roles)

    def _look_up(self, text: str) -> np.ndarray:
        assert self._table is not None
        points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        return self._table[np.minimum(points, len(self._table) - 1)]


def _restored(backend: str, pad_id: int, eos_id: int, unk_id: int | None, roles: dict[str, int]) -> TextTokenizer:
    return TextTokenizer(Tokenizer.from_str(backend), pad_id, eos_id, unk_id, roles)


def with_roles(tokenizer: TextTokenizer) -> TextTokenizer:
    """The same tokenizer with the roles behind its other tokens; every text keeps its ids."""
    backend = Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens(list(ROLES.values()))
    vocabulary = backend.get_vocab()
    roles = {role: vocabulary[token] for role, token in ROLES.items()}
    return TextTokenizer(backend, tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, roles)


def _character_table(backend: Tokenizer) -> np.ndarray | None:
    """id of every code point if `backend` is a character tokenizer, else None; the last entry is UNK.

    The table is used only when the stored tokenizer is, to the letter, what `character_backend` makes of its own
    vocabulary; then looking code points up is the same function, some fifty times faster.
    """
    vocabulary = backend.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    roles = tokens[3 : 3 + len(ROLES)] == list(ROLES.values())
    characters = tokens[3 + len(ROLES) * roles :]
    if tokens[:3] != [PAD, EOS, UNK] or any(len(token) != 1 for token in characters):
        return None
    if backend.to_str() != character_backend(characters, roles).to_str():
        return None
    table = np.full(max([ord(c) for c in characters], default=0) + 2, vocabulary[UNK], dtype=np.int64)
    for character in characters:
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
