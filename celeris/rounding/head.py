"""The rounding head: learned logits plus the exact Bayes evidence of the noisy latent itself.

For isotropic Gaussian noise and a codebook of equal norms, p(v | z, rest) ∝ p(v | rest)·exp((alpha/sigma²)·<z, e_v>)
("output prior" in Plaid 2305.18619, "Bayes skip" in LangFlow 2604.11748). The network only has to learn p(v | rest).
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from celeris.noise.process import evidence_scale
from celeris.typing import Gamma, Ids, Latent, Logits, Table


class Denoised(NamedTuple):
    """What the denoiser says about noisy positions.

    Attributes:
        logits: (*shape, V) float32, log-probabilities of the tokens up to a constant.
        vector: (*shape, D) x0_hat of a head that predicts it; None where x0_hat is the mean embedding of logits.
    """

    logits: Logits
    vector: Latent | None = None

    def x0_hat(self, table: Table, temperature: float = 1.0) -> Latent:
        """(*shape, D) float32 estimate of x0.

        Temperature 1 is the model's own: its vector, or the mean embedding. Any other rounds: softmax(logits/T) @
        table, and 0 takes the embedding of the most probable token (the clamping trick of Diffusion-LM 2205.14217,
        section 4.3).
        """
        if temperature == 0:
            return F.embedding(pick(self.logits), table.float())
        if self.vector is not None and temperature == 1:
            return self.vector
        return expected_embedding(self.logits, table, temperature)


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


class RoundingHead(nn.Module, ABC):
    """Hidden state → tokens. `forward` gives learned logits (context stream), `denoised` reads a noisy position.

    Args:
        vocab_size: V.
    """

    prior: Tensor

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.register_buffer("prior", torch.zeros(vocab_size))

    def forbid(self, ids: list[int]) -> None:
        """These tokens (PAD, UNK) are never text: their log prior is −1e9."""
        self.prior[ids] = -1e9

    @torch.no_grad()
    def set_unigram(self, counts: Tensor) -> None:
        """Start from the token frequencies `counts` (V,) of the training data (add-one smoothed)."""
        smooth = torch.where(self.prior > -1e8, counts.to(self.prior) + 1, 0)
        self.prior.copy_(torch.where(self.prior > -1e8, (smooth / smooth.sum()).log(), self.prior))

    @abstractmethod
    def forward(self, hidden: Tensor, table: Table) -> Logits:
        """Learned logits: (*shape, H) → (*shape, V), float32."""

    @abstractmethod
    def denoised(self, hidden: Tensor, z: Latent, gamma: Gamma, table: Table, own: Logits | None = None) -> Denoised:
        """(*shape, H), (*shape, D), (*shape) → logits and, where the head predicts a vector, x0_hat.

        `own` is the evidence of z where the caller has it already.
        """


class SoftmaxHead(RoundingHead):
    """Logits W·h (zero-initialised) + log unigram + Bayes evidence; x0_hat is their mean embedding.

    The same matrix serves the canvas (this token) and the context stream (the next token).

    Args:
        width: H.
        vocab_size: V.
        evidence: add the exact evidence of z; without it the network has to learn it.
    """

    def __init__(self, width: int, vocab_size: int, evidence: bool = True) -> None:
        super().__init__(vocab_size)
        self.project = nn.Linear(width, vocab_size)
        nn.init.zeros_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self.evidence = evidence

    def forward(self, hidden: Tensor, table: Table) -> Logits:
        return F.linear(hidden, self.project.weight, self.project.bias).float() + self.prior

    def denoised(self, hidden: Tensor, z: Latent, gamma: Gamma, table: Table, own: Logits | None = None) -> Denoised:
        logits = self(hidden, table)
        if not self.evidence:
            return Denoised(logits)
        return Denoised(logits + (evidence(z, gamma, table) if own is None else own))
