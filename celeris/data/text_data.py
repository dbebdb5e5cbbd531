"""A corpus ready for training: source, tokenizer, packed rows and loaders behind one object."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from celeris.batch import Batch
from celeris.data.blanks import Blanks
from celeris.data.cache import PackedText, cached_rows, cached_tokenizer
from celeris.data.layouts import Documents, Layout, Responses
from celeris.data.loader import MicroBatches, batches
from celeris.data.packing import EOS_POLICY, Packing, PairRows
from celeris.data.prepare import SPLITS, Work
from celeris.data.rows import EpochOrder, Rows
from celeris.data.sources.base import Source, Split
from celeris.data.tokenizers import TokenizerBuilder
from celeris.errors import CelerisError
from celeris.streams import stream
from celeris.tokenizer import TextTokenizer

MOST_UNKNOWN = 0.01
COMPARED = ("source", "source_fingerprint", "detokenizer", "tokenizer_fingerprint", "packing", "eos_policy")
PARTS: dict[Split, str] = {"train": "training", "val": "held-out"}


@dataclass
class TextData:
    """Text of `source`, tokenized and packed once and kept in `cache_dir`. Nothing is read before it is used.

    Attributes:
        tokenizer_builder: called with the training texts.
        layout: rows to context and canvas.
    """

    source: Source
    tokenizer_builder: TokenizerBuilder
    packing: Packing
    layout: Layout
    cache_dir: str | Path

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        return cached_tokenizer(self.source, self.tokenizer_builder, Path(self.cache_dir))

    @cached_property
    def packed(self) -> PackedText:
        """Rows and accounts.

        Raises:
            CelerisError: no text, less text than one row, or more than 1 % of it outside the vocabulary.
        """
        return self._pack()

    @property
    def train(self) -> Rows:
        return self.packed.rows["train"]

    @property
    def val(self) -> Rows:
        return self.packed.rows["val"]

    @property
    def bound_layout(self) -> Layout:
        """The layout, told the ids of the tokenizer if it asks for them.

        Raises:
            CelerisError: it asks for roles that the tokenizer does not have, or it would ask the model for prompts.
        """
        if isinstance(self.packing, PairRows) and not isinstance(self.layout, Responses):
            raise CelerisError(
                f"Rows of pairs need layout=responses, not {self.layout!r}: no prompt is ever asked for."
            )
        return self.layout.bind(self.tokenizer) if isinstance(self.layout, Documents | Blanks) else self.layout

    @property
    def fingerprint(self) -> str:
        """Changes with the text, the tokenizer, the packing or the row length."""
        return self.packed.key

    def prepare(self, workers: int = 0, done: Work | None = None) -> "TextData":
        """Make or open the cache and print where the tokens went. Of many processes one makes it, the others wait.

        Args:
            workers: processes that tokenize what is not there yet; below 2 this one does it.
            done: counts what is made.
        """
        if "packed" not in self.__dict__:
            self.packed = self._pack(workers, done)
        for split in SPLITS:
            m = self.packed.manifests[split]
            pairs = f", {m.pairs:,} pairs ({m.pairs_dropped:,} too long)" if m.pairs else ""
            print(
                f"{self.source.title} {split}: {m.documents:,} documents ({m.documents_empty:,} empty){pairs}, "
                f"{m.characters:,} characters -> {m.tokens_in:,} tokens in = {m.tokens_out:,} out + "
                f"{m.tokens_dropped:,} dropped; {m.rows:,} rows of {self.packing.length} with {m.tokens_pad:,} PAD; "
                f"UNK {m.unk / max(m.tokens_in, 1):.3%}"
            )
        return self

    def unigram_counts(self) -> np.ndarray:
        """(V,) int64: how often each id occurs in the training rows (PAD: 0)."""
        return self.packed.unigram

    def train_texts(self) -> Iterator[str]:
        """The training documents as they were read."""
        return self.source.documents("train")

    def val_texts(self) -> Iterator[str]:
        """The held-out documents as they were read."""
        return self.source.documents("val")

    def describe(self) -> dict[str, Any]:
        """What an export must remember of its data, in plain containers."""
        return {
            "source": self.source.title,
            "source_fingerprint": self.source.fingerprint(),
            "detokenizer": repr(getattr(self.source, "detokenizer", None)),
            "tokenizer": repr(self.tokenizer_builder),
            "tokenizer_fingerprint": self.tokenizer.fingerprint,
            "packing": repr(self.packing),
            "eos_policy": EOS_POLICY,
            "layout": repr(self.layout),
            "fingerprint": self.fingerprint,
            **{split: self.packed.manifests[split].as_dict() for split in SPLITS},
        }

    def differences(self, recorded: Mapping[str, Any]) -> list[str]:
        """What is not as it was in the `describe()` of another corpus, one sentence each; empty: figures compare."""
        here = self.describe()
        return [
            f"{key} was {recorded[key]!r} and is now {here[key]!r}."
            for key in COMPARED
            if key in recorded and recorded[key] != here[key]
        ]

    def train_loader(
        self,
        micro_batch_size: int,
        seed: int,
        start: int,
        stop: int,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> Iterable[Batch]:
        """Batches of the sample counters [start, stop) (see `MicroBatches`); resuming is a larger `start`."""
        order, pad_id = EpochOrder(seed, len(self.train)), self.tokenizer.pad_id
        dataset = MicroBatches(
            self.train, self.bound_layout, order, seed, pad_id, micro_batch_size, start, stop, rank, world_size
        )
        return batches(dataset, num_workers, pin_memory)

    def val_loader(self, batch_size: int, rank: int = 0, world_size: int = 1, num_workers: int = 0) -> DataLoader:
        """The held-out rows in order, laid out the same way every time (index = row number).

        One rank alone sees every row once. Of several, each has the same number of rows, so that none waits for
        another: at most `world_size` − 1 rows from the beginning are seen twice.
        """
        rows, seed = len(self.val), stream(0, "validation")
        dataset = MicroBatches(
            self.val, self.bound_layout, None, seed, self.tokenizer.pad_id, batch_size, 0, rows, rank, world_size
        )
        return batches(dataset, num_workers)

    def _pack(self, workers: int = 0, done: Work | None = None) -> PackedText:
        packed = cached_rows(self.source, self.tokenizer, self.packing, Path(self.cache_dir), workers, done)
        self._check(packed)
        return packed

    def _check(self, packed: PackedText) -> None:
        for split in SPLITS:
            words, m = PARTS[split], packed.manifests[split]
            if m.documents == m.documents_empty:
                raise CelerisError(f"The {words} part of {self.source.title} has no text; give it some.")
            if m.rows == 0:
                raise CelerisError(
                    f"The {words} part of {self.source.title} has {m.tokens_in} tokens, fewer than one row of "
                    f"{self.packing.length}; add text or set a smaller length=."
                )
            if m.unk > MOST_UNKNOWN * m.tokens_in:
                raise CelerisError(
                    f"{m.unk / m.tokens_in:.1%} of the {words} part of {self.source.title} is unknown to "
                    f"{self.tokenizer_builder!r}, more than {MOST_UNKNOWN:.0%}; use tokenizer=byte or tokenizer=bpe."
                )
