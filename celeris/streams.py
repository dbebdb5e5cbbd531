"""Independent random streams, each derived from (seed, purpose, index).

A bare seed shared by two purposes makes their numbers equal: sampling noise drawn like the embedding table *is* the
embedding table, and DDIM then prints the vocabulary in order. Hashing the purpose in makes the streams unrelated.
"""

import hashlib

import torch


def stream(seed: int, purpose: str, index: int = 0) -> int:
    """63-bit seed of the stream `purpose` number `index` under the run's `seed`."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(seed: int, purpose: str, index: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator at the start of stream (seed, purpose, index)."""
    return torch.Generator(device=device).manual_seed(stream(seed, purpose, index))
