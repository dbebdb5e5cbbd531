"""Ring collectives: what each rank sends, and how long it takes.

All-reduce is a reduce-scatter and an all-gather, each of N − 1 messages of 1/N of the data (Patarasuk and Yuan 2009,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", section 3), so 2·(N − 1)/N of the data is sent.
"""

import math


def gather_bytes(size: float, ranks: int) -> float:
    """Sent by each rank until all N have the `size` bytes of which each had 1/N: (N − 1)/N of them."""
    return (ranks - 1) / ranks * size


def scatter_bytes(size: float, ranks: int) -> float:
    """Sent by each rank until each of N has its 1/N of a sum of `size` bytes."""
    return (ranks - 1) / ranks * size


def all_reduce_bytes(size: float, ranks: int) -> float:
    """Sent by each rank until all N have the whole sum of `size` bytes: a scatter and a gather.

    ZeRO with weights collected in forward and again in backward sends 3·(N − 1)/N (1910.02054, section 7.2.2): two
    gathers and a scatter, where all-reduced gradients are one of each.
    """
    return scatter_bytes(size, ranks) + gather_bytes(size, ranks)


def tensor_parallel_bytes(tokens: int, width: int, depth: int, ranks: int, bytes_each: int = 2) -> float:
    """Sent by each rank in a micro-batch when every matrix is divided among `ranks`.

    Two all-reduces of the activations in forward and two in backward of each layer (Megatron-LM 1909.08053, section 3).

    Args:
        tokens: of the micro-batch, of all streams and passes that are read.
    """
    return depth * 4 * all_reduce_bytes(tokens * width * bytes_each, ranks)


def ring_messages(ranks: int) -> int:
    """One after another in a gather or a scatter: every rank's part passes every other rank."""
    return ranks - 1


def tree_messages(ranks: int) -> int:
    """One after another in an all-reduce: up a tree and down again (Sanders, Speck and Träff 2009, "Two-tree algorithms
    for full bandwidth broadcast, reduction and scan"; NCCL takes them where rings would have too many)."""
    return 2 * math.ceil(math.log2(ranks))


def wire_seconds(sent: float, messages: int, bandwidth: float, latency: float) -> float:
    """Time to send `sent` bytes over a link of `bandwidth` bytes/s in `messages` messages."""
    return sent / bandwidth + messages * latency
