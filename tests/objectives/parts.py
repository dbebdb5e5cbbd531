"""Batches, an exact denoiser in a model's clothes, and a schedule whose ends can be trained."""

import torch
from torch import Tensor, nn

from celeris.batch import Batch
from celeris.denoiser import Context
from celeris.model import DiffusionLM
from celeris.noise import Schedule
from celeris.rounding import Denoised, evidence


def block_batch(ids: Tensor, length: int = 8, first: int = 0) -> Batch:
    """Rows of text laid out as `all_blocks` does, numbered from `first`."""
    rows, size = ids.shape
    start = (torch.arange(size // length) * length).expand(rows, -1)
    canvas = ids.view(rows, -1, length)
    ragged = bool((ids == 0).any())
    index = torch.arange(first, first + rows)
    return Batch(ids, canvas, start, torch.zeros(canvas.shape, dtype=torch.bool), index, False, ragged)


def text(rows: int, size: int = 16, vocab_size: int = 13, seed: int = 0) -> Tensor:
    return torch.randint(2, vocab_size, (rows, size), generator=torch.Generator().manual_seed(seed))


class EndsSchedule(Schedule):
    """A line between two trainable ends."""

    def __init__(self, low: float = -3.0, high: float = 6.0) -> None:
        super().__init__()
        self.ends = nn.Parameter(torch.tensor([low, high]))

    def gamma(self, t: Tensor) -> Tensor:
        return (self.ends[0] + (self.ends[1] - self.ends[0]) * t.double()).to(t.dtype)

    def t(self, gamma: Tensor) -> Tensor:
        return ((gamma - self.ends[0]) / (self.ends[1] - self.ends[0])).clamp(0, 1)

    def slope(self, t: Tensor) -> Tensor:
        return (self.ends[1] - self.ends[0]).expand_as(t).to(t.dtype)


class SingleToken(DiffusionLM):
    """The exact posterior of independent tokens drawn from `p`: a DiffusionLM without a network."""

    def __init__(self, p: Tensor, dim: int, schedule: Schedule) -> None:
        nn.Module.__init__(self)
        self.pad_id, self.self_conditioning, self.has_next_token_head = -1, False, False
        rng = torch.Generator().manual_seed(3)
        table = nn.functional.normalize(torch.randn(len(p), dim, generator=rng), dim=-1) * dim**0.5
        self.embedding = nn.Embedding.from_pretrained(table)
        self.embedding.dim, self.embedding.table = dim, table
        self.p, self.schedule = p, schedule

    def encode_context(self, ids: Tensor, lengths: Tensor, past: Context | None = None) -> Context:
        return Context(lengths, [], torch.zeros(*ids.shape, 0))

    def predict(self, z: Tensor, gamma: Tensor, *_: object) -> Denoised:
        return Denoised(evidence(z, gamma, self.embedding.table) + self.p.log().float())

    def x0_hat(self, out: Denoised, temperature: float = 1.0) -> Tensor:
        return out.x0_hat(self.embedding.table, temperature)
