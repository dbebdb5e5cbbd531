"""Activation checkpointing (1604.06174): a layer keeps its inputs only, and is computed again in backward."""

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from celeris.language_model import passes


def recompute(layers: Iterable[nn.Module]) -> None:
    """Have each layer computed again in backward, in place: less memory, about a third more time, equal gradients.

    Dropout draws the same mask again. Parameter names and state dicts stay.
    """
    for layer in layers:
        for name in passes(layer):
            setattr(layer, name, partial(checkpoint, getattr(layer, name), use_reentrant=False))
