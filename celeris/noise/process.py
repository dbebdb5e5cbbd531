"""The one forward process: z = alpha·x0 + sigma·eps, variance preserving, indexed by gamma = −log-SNR.

alpha² = sigmoid(−gamma), sigma² = sigmoid(gamma) (VDM, 2107.00630, eq. 3–4). Everything here is float32 or float64:
at the ends of the path bf16 has no digits left.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.typing import Gamma, Latent


class AlphaSigma(NamedTuple):
    """Coefficients of x0 and eps; `sigma` is a standard deviation."""

    alpha: Tensor
    sigma: Tensor


def alpha_sigma(gamma: Gamma) -> AlphaSigma:
    """alpha(gamma) and sigma(gamma), shaped like `gamma`, at least float32."""
    gamma = gamma if gamma.dtype == torch.float64 else gamma.float()
    return AlphaSigma(torch.sigmoid(-gamma).sqrt(), torch.sigmoid(gamma).sqrt())


def snr(gamma: Gamma) -> Gamma:
    """alpha²/sigma² = exp(−gamma)."""
    return torch.exp(-gamma)


def evidence_scale(gamma: Gamma) -> Gamma:
    """alpha/sigma², the factor of <z, e_v> in the Bayes posterior (LangFlow 2604.11748, Bayes skip).

    Written as exp(½(softplus(−gamma) − gamma)), which neither overflows nor cancels.
    """
    return torch.exp(0.5 * (F.softplus(-gamma) - gamma))


def add_noise(x0: Latent, gamma: Gamma, eps: Latent) -> Latent:
    """z = alpha·x0 + sigma·eps; `gamma` has the shape of x0 without its last axis (or broadcasts to it)."""
    alpha, sigma = alpha_sigma(gamma)
    return alpha[..., None] * x0 + sigma[..., None] * eps
