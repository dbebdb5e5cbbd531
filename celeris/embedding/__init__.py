"""ids → x0."""

from celeris.embedding.base import EmbeddingTable
from celeris.embedding.free import FreeEmbedding
from celeris.embedding.frozen import FrozenEmbedding
from celeris.embedding.table import TokenEmbedding

__all__ = ["EmbeddingTable", "FreeEmbedding", "FrozenEmbedding", "TokenEmbedding"]
