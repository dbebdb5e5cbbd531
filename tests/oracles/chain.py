"""A small Markov chain whose exact posterior p(token_k | all z) is known by forward–backward: the perfect denoiser."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.noise.path import canvas_levels
from celeris.rounding import Denoised, evidence


class Chain:
    """Stationary first-order chain over V symbols with embeddings of norm √D."""

    def __init__(self, vocab_size: int = 4, dim: int = 6, seed: int = 0, sharpness: float = 1.5) -> None:
        rng = torch.Generator().manual_seed(seed)
        step = torch.softmax(sharpness * torch.randn(vocab_size, vocab_size, generator=rng, dtype=torch.float64), -1)
        self._set(step, torch.randn(vocab_size, dim, generator=rng))

    def _set(self, step: Tensor, table: Tensor) -> None:
        self.step = step
        power = torch.linalg.matrix_power(step, 200)
        self.first = power[0] / power[0].sum()  # stationary, so that every position has the same statistics
        self.table = F.normalize(table, dim=-1) * math.sqrt(table.shape[1])

    @classmethod
    def memoryless(cls, probabilities: list[float], dim: int = 5, seed: int = 3) -> "Chain":
        """Independent symbols: every row of the transition matrix is the same."""
        chain, size = cls.__new__(cls), len(probabilities)
        p = torch.tensor(probabilities, dtype=torch.float64)
        chain._set(p.expand(size, -1), torch.randn(size, dim, generator=torch.Generator().manual_seed(seed)))
        return chain

    def sample(self, rows: int, length: int, seed: int = 1) -> Tensor:
        rng = torch.Generator().manual_seed(seed)
        ids = [torch.multinomial(self.first, rows, True, generator=rng)]
        for _ in range(length - 1):
            ids.append(torch.multinomial(self.step[ids[-1]], 1, generator=rng)[:, 0])
        return torch.stack(ids, 1)

    def entropy(self, length: int) -> float:
        """H(x_1 … x_length) in nats."""
        transition = -(self.first[:, None] * self.step * self.step.log()).sum()
        return float(-(self.first * self.first.log()).sum() + (length - 1) * transition)

    def nats(self, ids: Tensor) -> Tensor:
        """−log p of the rows ids (…, L): (…)."""
        return -self.first[ids[..., 0]].log() - self.step[ids[..., :-1], ids[..., 1:]].log().sum(-1)

    def posterior(self, z: Tensor, gamma: Tensor) -> Tensor:
        """log p(token_k | all z): (…, C, D), (…, C) → (…, C, V), float64, by the scaled forward–backward recursions."""
        squares = 0.5 * torch.exp(-gamma.double())[..., None] * self.table.double().square().sum(-1)
        log_likelihood = evidence(z, gamma, self.table).double() - squares  # of any table, equal norms or not
        likelihood = (log_likelihood - log_likelihood.amax(-1, keepdim=True)).exp()
        length = z.shape[-2]
        forward = [self.first * likelihood[..., 0, :]]
        for k in range(1, length):
            ahead = (forward[-1] @ self.step) * likelihood[..., k, :]
            forward.append(ahead / ahead.sum(-1, keepdim=True))
        backward = [torch.ones_like(forward[0])]
        for k in range(length - 1, 0, -1):
            back = (likelihood[..., k, :] * backward[-1]) @ self.step.T
            backward.append(back / back.sum(-1, keepdim=True))
        joint = torch.stack(forward, -2) * torch.stack(backward[::-1], -2)
        return torch.log_softmax(joint.clamp_min(1e-300).log(), -1)

    def denoise(self, z: Tensor, gamma: Tensor, ids: Tensor) -> Denoised:
        """The exact denoiser in the shape the likelihoods ask for."""
        return Denoised(self.posterior(z, gamma).float())


class Oracle:
    """Wears a model's clothes for the scheduler: schedule, table, x0_hat, gamma_at."""

    def __init__(self, table: Tensor, schedule, stagger: float = 0.0) -> None:
        self.schedule, self.stagger = schedule, stagger
        self.embedding = type("Embedding", (), {"table": table, "dim": table.shape[1]})()

    def gamma_at(self, t, block_length, stagger):
        clock = torch.as_tensor(t, dtype=torch.float64)
        return self.schedule.gamma(canvas_levels(clock, block_length, stagger).u)

    def x0_hat(self, out, temperature=1.0):
        return out.x0_hat(self.embedding.table, temperature)
