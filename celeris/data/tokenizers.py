"""Tokenizers made for a corpus: characters, bytes, and byte-level BPE.

A builder is called with the training texts and returns a `TextTokenizer`. Its `repr` names everything that decides the
result, so that a trained tokenizer can be kept in the cache; `trained` says whether the texts matter at all.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from celeris.errors import CelerisError
from celeris.tokenizer import EOS, PAD, ROLES, TextTokenizer, character_backend


@runtime_checkable
class TokenizerBuilder(Protocol):
    """What `TextData` needs of a tokenizer builder."""

    trained: ClassVar[bool]

    def __call__(self, texts: Iterable[str]) -> TextTokenizer: ...


@dataclass(frozen=True)
class CharTokenizer:
    """Every character of the training text, the most frequent first; others become UNK.

    Attributes:
        max_vocab: keep only this many tokens (special ones included); None keeps every character, however rare.
        roles: with the tokens of a conversation (ids 3, 4, 5).
    """

    max_vocab: int | None = None
    roles: bool = False
    trained: ClassVar[bool] = True

    def __call__(self, texts: Iterable[str]) -> TextTokenizer:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        # Ties are broken by code point, or the vocabulary would depend on the order of the documents.
        ordered = sorted(counts, key=lambda c: (-counts[c], c))
        special = 3 + len(ROLES) * self.roles
        kept = ordered if self.max_vocab is None else ordered[: max(self.max_vocab - special, 0)]
        return TextTokenizer(character_backend(kept, self.roles), 0, 1, 2, role_tokens(3, self.roles))


@dataclass(frozen=True)
class ByteTokenizer:
    """The 256 bytes of UTF-8: PAD = 0, EOS = 1, byte b = 2 + b.

    Attributes:
        roles: with the tokens of a conversation (ids 258, 259, 260).
    """

    roles: bool = False
    trained: ClassVar[bool] = False

    def __call__(self, texts: Iterable[str]) -> TextTokenizer:
        names = _byte_names()
        roles = list(ROLES.values()) if self.roles else []
        vocabulary = {token: i for i, token in enumerate([PAD, EOS, *names, *roles])}
        backend = Tokenizer(models.BPE(vocabulary, merges=[]))
        _byte_level(backend, use_regex=False)
        backend.add_special_tokens([PAD, EOS, *roles])
        return TextTokenizer(backend, pad_id=0, eos_id=1, roles=role_tokens(2 + len(names), self.roles))


@dataclass(frozen=True)
class BPETokenizer:
    """Byte-level byte-pair encoding trained on the corpus (Radford et al. 2019, section 2.2): no text is unknown.

    Attributes:
        vocab_size: tokens, of which 256 are the bytes and 2 are PAD = 0 and EOS = 1.
        roles: with the tokens of a conversation (ids 2, 3, 4).
    """

    vocab_size: int = 4096
    roles: bool = False
    trained: ClassVar[bool] = True

    def __call__(self, texts: Iterable[str]) -> TextTokenizer:
        special = [PAD, EOS, *(ROLES.values() if self.roles else ())]
        least = 256 + len(special)
        if self.vocab_size < least:
            raise CelerisError(f"A byte-level BPE needs at least {least} tokens, not vocab_size={self.vocab_size}.")
        backend = Tokenizer(models.BPE())
        _byte_level(backend, use_regex=True)
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(texts, trainer)
        return TextTokenizer(backend, pad_id=0, eos_id=1, roles=role_tokens(2, self.roles))


def role_tokens(first: int, roles: bool) -> dict[str, int]:
    """Role → id, the first of them `first`; none for a tokenizer without."""
    return {role: first + k for k, role in enumerate(ROLES)} if roles else {}


def _byte_level(backend: Tokenizer, use_regex: bool) -> None:
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(  # type: ignore[assignment]
        add_prefix_space=False, use_regex=use_regex
    )
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]


def _byte_names() -> list[str]:
    """GPT-2's printable stand-ins of the bytes 0…255 (openai/gpt-2 encoder.py, `bytes_to_unicode`)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]
