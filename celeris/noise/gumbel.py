"""Gumbel schedule fitted online (LangFlow 2604.11748, section "noise scheduler")."""

import math

import torch
from torch import Tensor, nn

from celeris.noise.schedule import Observed, Schedule
from celeris.typing import Gamma


class GumbelSchedule(Schedule):
    """gamma(t) = mu − beta·ln(−ln u), u = cut + (1 − 2·cut)·t.

    The cross-entropy of a token as a function of gamma follows entropy·exp(−exp(−(gamma − mu)/beta)), a Gumbel CDF.
    Drawing gamma from that Gumbel makes the expected loss linear in t: each step of a uniform grid gains the same
    information. mu, beta and the entropy are learned by regression on the observed losses.

    Args:
        mu: location; ln D − ln 2h for h nats per token is a good start (channel capacity (D/2)·SNR).
        beta: scale, kept in [0.3, 2].
        entropy: nats per token at pure noise.
        cut: quantile clipped at both ends.
    """

    def __init__(self, mu: float, beta: float = 0.85, entropy: float = 3.0, cut: float = 1e-5) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.tensor(float(mu)))
        self.log_beta = nn.Parameter(torch.tensor(math.log(beta)))
        self.entropy = nn.Parameter(torch.tensor(float(entropy)))
        self.cut = cut

    @property
    def beta(self) -> Tensor:
        return self.log_beta.clamp(math.log(0.3), math.log(2.0)).exp()

    def _quantile(self, t: Tensor) -> Tensor:
        return (self.cut + (1 - 2 * self.cut) * t.double()).clamp(self.cut, 1 - self.cut)

    @torch.no_grad()
    def gamma(self, t: Tensor) -> Gamma:
        gamma = self.mu.double() - self.beta.double() * torch.log(-torch.log(self._quantile(t)))
        return gamma.to(t.dtype)

    @torch.no_grad()
    def t(self, gamma: Gamma) -> Tensor:
        u = torch.exp(-torch.exp(-(gamma.double() - self.mu.double()) / self.beta.double()))
        return ((u - self.cut) / (1 - 2 * self.cut)).clamp(0, 1).to(gamma.dtype)

    @torch.no_grad()
    def slope(self, t: Tensor) -> Tensor:
        u = self._quantile(t)
        return ((1 - 2 * self.cut) * self.beta.double() / (-u * torch.log(u))).to(t.dtype)

    def fit(self, seen: Observed) -> Tensor:
        curve = self.entropy * torch.exp(-torch.exp(-(seen.gamma.float() - self.mu) / self.beta))
        counted = seen.counted & torch.isfinite(seen.cross_entropy)
        miss = torch.where(counted, seen.cross_entropy.float() - curve, 0.0).square()
        return miss.sum() / counted.sum().clamp_min(1)
