"""A head that predicts a vector of the embedding space: x0, eps or v."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from celeris.noise.prediction import Prediction
from celeris.noise.process import alpha_sigma
from celeris.rounding.head import Denoised, RoundingHead
from celeris.typing import Gamma, Latent, Logits, Table


class VectorHead(RoundingHead):
    """x0_hat from a linear read-out of D numbers; tokens by the table itself, as in Diffusion-LM (2205.14217, eq. 2).

    The read-out is zero at first and is added to what the linear denoiser x0_hat = alpha·z would output in the same
    prediction: nothing for v (then x0_hat is EDM's c_skip·z + c_out·F for unit-variance data, 2206.00364 table 1), and
    sigma·z for eps (the network of VDM, 2107.00630, adds z itself). So an untrained head is finite at every level;
    a plain eps of zero would say x0_hat = z/alpha, which grows without bound towards the noise.

    Everything past the hidden state is float32.

    Args:
        width: H.
        vocab_size: V.
        dim: D.
        prediction: what the D numbers mean (`celeris.noise.prediction`).
    """

    def __init__(self, width: int, vocab_size: int, dim: int, prediction: Prediction) -> None:
        super().__init__(vocab_size)
        self.project = nn.Linear(width, dim)
        nn.init.zeros_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self.prediction = prediction

    def read(self, hidden: Tensor) -> Latent:
        """(*shape, H) → (*shape, D)."""
        with torch.autocast(hidden.device.type, enabled=False):
            return F.linear(hidden.float(), self.project.weight.float(), self.project.bias.float())

    def forward(self, hidden: Tensor, table: Table) -> Logits:
        return tied_logits(self.read(hidden), table, self.prior)

    def denoised(self, hidden: Tensor, z: Latent, gamma: Gamma, table: Table, own: Logits | None = None) -> Denoised:
        z, gamma = z.float(), gamma.float()
        linear = self.prediction.from_x0(alpha_sigma(gamma).alpha[..., None] * z, z, gamma)
        x0_hat = self.prediction.to_x0(linear + self.read(hidden), z, gamma)
        return Denoised(tied_logits(x0_hat, table, self.prior), x0_hat)


def tied_logits(x: Latent, table: Table, prior: Tensor) -> Logits:
    """x·tableᵀ + prior in float32: (*shape, D), (V, D), (V) → (*shape, V)."""
    with torch.autocast(x.device.type, enabled=False):
        return x.float() @ table.float().T + prior
