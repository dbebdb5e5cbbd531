"""The rounding head: learned logits plus the exact Bayes evidence of the noisy latent itself.

For isotropic Gaussian noise and a codebook of equal norms, p(v | z, rest) ∝ p(v | rest)·exp((alpha/sigma²)·<z, e_v>)
("output prior" in Plaid 2305.18619, "Bayes skip" in LangFlow 2604.11748). The network only has to learn p(v | rest).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from celeris.noise.process import evidence_scale
from celeris.typing import Gamma, Ids, Latent, Logits, Table


def evidence(z: Latent, gamma: Gamma, table: Table) -> Logits:
    """(alpha/sigma²)·z·tableᵀ in float32: (*shape, D), (*shape) → (*shape, V)."""
    with torch.autocast(z.device.type, enabled=False):
        return evidence_scale(gamma.float())[..., None] * (z.float() @ table.float().T)


def expected_embedding(logits: Logits, table: Table, temperature: float = 1.0) -> Latent:
    """x0_hat = softmax(logits/T) @ table, float32: (*shape, V) → (*shape, D)."""
    with torch.autocast(logits.device.type, enabled=False):
        return torch.softmax(logits.float() / temperature, -1) @ table.float()


def pick(logits: Logits) -> Ids:
    """The most probable token of each position: (*shape, V) → (*shape)."""
    return logits.argmax(-1)


class RoundingHead(nn.Module):
    """Learned logits of a hidden state: W·h (zero-initialised) + log unigram, with impossible tokens at −1e9.

    The same matrix serves the canvas (this token) and the context stream (the next token).

    Args:
        width: H.
        vocab_size: V.
        impossible: ids that are never text (PAD, UNK).
    """

    prior: Tensor

    def __init__(self, width: int, vocab_size: int, impossible: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.project = nn.Linear(width, vocab_size)
        nn.init.zeros_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        prior = torch.zeros(vocab_size)
        prior[list(impossible)] = -1e9
        self.register_buffer("prior", prior)

    @torch.no_grad()
    def set_unigram(self, counts: Tensor) -> None:
        """Start from the token frequencies `counts` (V,) of the training data (add-one smoothed)."""
        smooth = torch.where(self.prior > -1e8, counts.to(self.prior) + 1, 0)
        self.prior.copy_(torch.where(self.prior > -1e8, (smooth / smooth.sum()).log(), self.prior))

    def forward(self, hidden: Tensor) -> Logits:
        """(*shape, H) → (*shape, V), float32."""
        return F.linear(hidden, self.project.weight, self.project.bias).float() + self.prior
