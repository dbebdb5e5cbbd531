"""A seeded corpus of any size, as .jsonl: words with Zipf's frequencies, documents of very different lengths.

`python -m tests.data.synthetic corpus.jsonl 200000000` writes 200 MB.
"""

import json
import sys
from pathlib import Path

import numpy as np

WORDS = 20_000


def write_corpus(file: Path, size: int, seed: int) -> None:
    """Write documents to `file` until they have `size` bytes of text."""
    generator = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxzéü"))
    words = ["".join(generator.choice(letters, length)) for length in generator.integers(1, 12, WORDS)]
    chances = 1 / np.arange(1, WORDS + 1)
    chances /= chances.sum()
    written = 0
    with open(file, "w", encoding="utf-8") as stream:
        while written < size:
            drawn = generator.choice(WORDS, 200_000, p=chances).tolist()
            ends = np.cumsum(1 + generator.pareto(1.5, 2000) * 100).astype(int)
            for start, end in zip([0, *ends[:-1]], ends, strict=True):
                text = " ".join(words[k] for k in drawn[start:end])
                if not text or written >= size:
                    break
                written += len(text.encode())
                stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]), int(sys.argv[2]), seed=0)
