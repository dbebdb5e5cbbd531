"""Gaussians of the forward process: transitions, posteriors, and the divergences the bound is made of.

Times are named as in VDM (2107.00630): s is cleaner than t, gamma_s ≤ gamma_t. Everything follows from
c = 1 − exp(gamma_s − gamma_t), the share of z_t's noise that came after s, taken by expm1; ratios of alphas and sigmas
are differences of softplus. Neither cancels when s and t are close. Where gamma_s > gamma_t, deviations are NaN.

Shapes: latents are (…, D); gammas and deviations (isotropic) are (…), or broadcast to it. float32 at least.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.noise.process import alpha_sigma
from celeris.typing import Gamma, Latent


class Gaussian(NamedTuple):
    """N(mean, std²·I): mean (…, D), std (…)."""

    mean: Latent
    std: Tensor


class PosteriorCoefficients(NamedTuple):
    """q(z_s | z_t, x0) = N(z·z_t + x0·x0, std²·I): the factors of z_t and x0, and the deviation, all (…)."""

    z: Tensor
    x0: Tensor
    std: Tensor


def posterior_coefficients(gamma_s: Gamma, gamma_t: Gamma) -> PosteriorCoefficients:
    """Factors of q(z_s | z_t, x0) (2107.00630, eq. 25–26 and appendix A.2).

    The paper's alpha_{t|s}·sigma_s²/sigma_t², alpha_s·sigma²_{t|s}/sigma_t² and sigma_{t|s}·sigma_s/sigma_t are
    (sigma_s/sigma_t)·exp(½(gamma_s − gamma_t)), alpha_s·c and sigma_s·√c.
    """
    gamma_s, gamma_t = _wide(gamma_s), _wide(gamma_t)
    alpha_s, sigma_s = alpha_sigma(gamma_s)
    share = -torch.expm1(gamma_s - gamma_t)
    z = torch.exp(0.5 * (F.softplus(-gamma_t) - F.softplus(-gamma_s) + gamma_s - gamma_t))
    return PosteriorCoefficients(z, alpha_s * share, sigma_s * share.sqrt())


def posterior(z_t: Latent, x0: Latent, gamma_s: Gamma, gamma_t: Gamma) -> Gaussian:
    """q(z_s | z_t, x0)."""
    factor = posterior_coefficients(gamma_s, gamma_t)
    return Gaussian(factor.z[..., None] * z_t + factor.x0[..., None] * x0, factor.std)


def transition(z_s: Latent, gamma_s: Gamma, gamma_t: Gamma) -> Gaussian:
    """q(z_t | z_s) = N(alpha_{t|s}·z_s, sigma²_{t|s}·I) (2107.00630, eq. 23–24): more noise on top of z_s."""
    gamma_s, gamma_t = _wide(gamma_s), _wide(gamma_t)
    scale = torch.exp(0.5 * (F.softplus(gamma_s) - F.softplus(gamma_t)))
    return Gaussian(scale[..., None] * z_s, alpha_sigma(gamma_t).sigma * (-torch.expm1(gamma_s - gamma_t)).sqrt())


def gaussian_kl(p: Gaussian, q: Gaussian) -> Tensor:
    """KL(p ‖ q) in nats, summed over D: (…). Equal deviations leave ‖mean_p − mean_q‖²/(2·std²)."""
    log_ratio = 2 * (torch.log(p.std) - torch.log(q.std))
    distance = ((p.mean - q.mean) / q.std[..., None]).square().sum(-1)
    return 0.5 * (p.mean.shape[-1] * (torch.expm1(log_ratio) - log_ratio) + distance)


def prior_kl(squared_norm: Tensor, gamma_1: Gamma, dim: int) -> Tensor:
    """KL(q(z_1 | x0) ‖ N(0, I)) in nats (2107.00630, eq. 11, first term): (…), float64.

    Args:
        squared_norm: ‖x0‖² (…). With ‖x0‖² = D the whole is ½·D·log(1 + exp(−gamma_1)).
        gamma_1: the noisiest level (…).
        dim: D.
    """
    gamma_1 = gamma_1.double()
    # sigma² = sigmoid(gamma) is too close to 1 for its logarithm: −log sigma² = softplus(−gamma).
    return 0.5 * (torch.sigmoid(-gamma_1) * (squared_norm.double() - dim) + dim * F.softplus(-gamma_1))


def diffusion_kl(squared_error: Tensor, gamma_s: Gamma, gamma_t: Gamma) -> Tensor:
    """KL(q(z_s | z_t, x0) ‖ q(z_s | z_t, x0_hat)) in nats: ½·(SNR(s) − SNR(t))·‖x0 − x0_hat‖² (2107.00630, eq. 13–14).

    The bound of T discrete steps is the sum of these over neighbours of the grid.
    """
    gamma_s, gamma_t = _wide(gamma_s), _wide(gamma_t)
    return -0.5 * torch.exp(-gamma_s) * torch.expm1(gamma_s - gamma_t) * squared_error


def diffusion_rate(squared_error: Tensor, gamma: Gamma) -> Tensor:
    """½·exp(−gamma)·‖x0 − x0_hat‖², nats per unit of gamma: `diffusion_kl` as T → ∞ (2107.00630, eq. 17)."""
    return 0.5 * torch.exp(-_wide(gamma)) * squared_error


def _wide(gamma: Gamma) -> Gamma:
    return gamma if gamma.dtype == torch.float64 else gamma.float()
