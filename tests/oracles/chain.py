"""A small Markov chain whose exact posterior p(token_k | all z) is known by forward–backward: the perfect denoiser."""

import math

import torch
from torch import Tensor

from celeris.noise.path import canvas_levels
from celeris.rounding import evidence


class Chain:
    """First-order chain over V symbols with embeddings of norm √D."""

    def __init__(self, vocab_size: int = 4, dim: int = 6, seed: int = 0, sharpness: float = 1.5) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.step = torch.softmax(
            sharpness * torch.randn(vocab_size, vocab_size, generator=rng, dtype=torch.float64), -1
        )
        power = torch.linalg.matrix_power(self.step, 200)
        self.first = power[0] / power[0].sum()  # stationary, so that every position has the same statistics
        table = torch.nn.functional.normalize(torch.randn(vocab_size, dim, generator=rng), dim=-1)
        self.table = table * math.sqrt(dim)

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

    def posterior(self, z: Tensor, gamma: Tensor) -> Tensor:
        """log p(token_k | all z): (…, C, D), (…, C) → (…, C, V), float64, by forward–backward in the log domain."""
        likelihood = evidence(z, gamma, self.table).double()
        log_step, length = self.step.log(), z.shape[-2]
        forward = [self.first.log() + likelihood[..., 0, :]]
        for k in range(1, length):
            forward.append(torch.logsumexp(forward[-1][..., :, None] + log_step, -2) + likelihood[..., k, :])
        backward = [torch.zeros_like(forward[0])]
        for k in range(length - 1, 0, -1):
            backward.append(torch.logsumexp(log_step + (likelihood[..., k, :] + backward[-1])[..., None, :], -1))
        return torch.log_softmax(torch.stack(forward, -2) + torch.stack(backward[::-1], -2), -1)


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
