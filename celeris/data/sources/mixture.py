"""Several sources as one: pairs of some, plain text of others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from celeris.data.sources.base import Pair, Source, Split, held_out, pairs_of
from celeris.errors import CelerisError


@dataclass(frozen=True)
class Mixture:
    """The training pairs and documents of all sources, of each a share; of the held-out ones all.

    Attributes:
        sources: of pairs, or of plain text.
        shares: how much of each source's training part is kept, in (0, 1]; chosen by a hash of the text.
    """

    sources: Sequence[Source]
    shares: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.shares) or not all(0 < share <= 1 for share in self.shares):
            raise CelerisError(
                f"shares={list(self.shares)} must give each of {len(self.sources)} sources one in (0, 1]."
            )

    @property
    def title(self) -> str:
        return " + ".join(source.title for source in self.sources)

    def pairs(self, split: Split) -> Iterator[Pair]:
        for source, share in zip(self.sources, self.shares, strict=True):
            for pair in pairs_of(source, split):
                if split == "val" or share == 1 or held_out(repr(pair), share):
                    yield pair

    def documents(self, split: Split) -> Iterator[str]:
        for prompt, response in self.pairs(split):
            yield from [response] if prompt is None else [prompt, response]

    def fingerprint(self) -> str:
        return f"mixture:{[source.fingerprint() for source in self.sources]}:{list(self.shares)}"
