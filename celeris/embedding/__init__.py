"""ids → x0."""

from celeris.embedding.table import TokenEmbedding

__all__ = ["TokenEmbedding"]
