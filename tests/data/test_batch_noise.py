"""What is random about a sample comes from (seed, its counter): 1 × 8, 2 × 4 and 8 × 1 rows are one run."""

from pathlib import Path

import pytest
import torch

from celeris.data.blanks import Blanks
from celeris.data.layouts import AllBlocks, Documents, Layout, Split
from celeris.data.packing import PackedRows, Packing, PaddedRows
from celeris.data.text_data import TextData
from celeris.data.tokenizers import ByteTokenizer
from celeris.noise.levels import LevelMixture, PerToken, Staggered, Together
from tests.data.corpora import LINES, Memory

ALL = [Together(), PerToken(), Staggered(0.5, 4.0)]


def samples(data: TextData, laws: list, micro: int, ranks: int) -> dict[int, dict[str, torch.Tensor]]:
    """Counter → the real positions of the sample and all that is random about them, of 16 counters."""
    levels = LevelMixture(laws, [1] * len(laws))
    found: dict[int, dict[str, torch.Tensor]] = {}
    for rank in range(ranks):
        for batch in data.train_loader(micro, 7, 8, 24, rank, ranks):
            blocks, length = batch.canvas.shape[1:]
            widths = None if batch.largest is None else (batch.canvas != data.tokenizer.pad_id).sum(-1)
            noise = levels.draw(batch.index, blocks, length, 3, 7, torch.device("cpu"), batch.largest, widths)
            for row, counter in enumerate(batch.index.tolist()):
                real = batch.canvas[row] != data.tokenizer.pad_id
                assert counter not in found
                found[counter] = {
                    "canvas": batch.canvas[row][real],
                    "given": batch.given[row][real],
                    "start": batch.start[row][real.any(-1)],
                    "u": noise.u[row][real],
                    "eps": noise.eps[row][real],
                    "weight": noise.weight[row][real],
                    "coin": torch.tensor(noise.coins[row]),
                }
    return found


@pytest.mark.parametrize(
    ("packing", "layout", "laws"),
    [
        (PackedRows(16), AllBlocks(4, p_given=0.5), ALL),
        (PaddedRows(64), AllBlocks(4, p_given=0.5), ALL),
        (PaddedRows(62), Documents(4, p_drop=0.3, p_given=0.5), ALL),
        (PackedRows(32), Split(p_given=0.5), ALL),
        (PaddedRows(64), Blanks(), ALL),
    ],
)
def test_a_sample_is_the_same_in_every_micro_batch_and_on_every_rank(
    packing: Packing, layout: Layout, laws: list, tmp_path: Path
):
    texts = [line * (1 + k % 3) if k % 4 else line[:12] for k, line in enumerate(LINES)]
    data = TextData(Memory(texts), ByteTokenizer(), packing, layout, tmp_path)
    whole = samples(data, laws, 8, 1)
    assert sorted(whole) == list(range(8, 24))
    for micro, ranks in ((4, 1), (1, 1), (4, 2), (1, 8), (2, 4)):
        parts = samples(data, laws, micro, ranks)
        assert parts.keys() == whole.keys()
        for counter, sample in whole.items():
            for name, value in sample.items():
                assert torch.equal(parts[counter][name], value), (micro, ranks, counter, name)
