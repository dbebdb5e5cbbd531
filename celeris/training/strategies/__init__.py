"""How Lightning runs several ranks, where its own strategies do not suffice."""

from celeris.training.strategies.fully_sharded import FullySharded

__all__ = ["FullySharded"]
