"""Names as parts of keys."""

import re


def slug(name: str) -> str:
    """`name` as a part of a logger's key: runs of anything but letters, digits and points become one "_"."""
    return re.sub(r"[^\w.]+", "_", name)
