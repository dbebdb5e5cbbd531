"""First sentences of Wikipedia articles: short documents of very different lengths."""

from collections.abc import Iterator
from dataclasses import dataclass

from celeris.data.sources.base import Split, held_out
from celeris.data.sources.wiki_leads import WikiLeads
from celeris.data.sources.wiki_pairs import first_sentences


@dataclass(frozen=True)
class WikiSentences(WikiLeads):
    """One document an article: the first sentence of its lead. Longer ones than `most_characters` are left out."""

    most_characters: int = 256
    title = "wiki_sentences"

    def documents(self, split: Split) -> Iterator[str]:
        for article in self.articles:
            if held_out(article["title"], self.val_fraction) == (split == "val"):
                sentence = first_sentences(article["extract"], 1)
                if len(sentence) <= self.most_characters:
                    yield sentence

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}:{self.most_characters}"
