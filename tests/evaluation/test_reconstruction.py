"""The bound's second term, on a path that starts where z still hides the token."""

import math

import torch

from celeris.evaluation.bound import row_bounds
from celeris.noise import LinearSchedule
from tests.oracles.chain import Chain


def test_a_path_that_starts_in_noise_pays_for_what_is_hidden_there():
    """Diffusion from gamma ½ on and reconstruction at gamma ½ together are the entropy, neither is alone."""
    chain = Chain.memoryless([0.7, 0.2, 0.1])
    ids = chain.sample(1500, 1, seed=0)[:, None]
    with torch.no_grad():
        terms = row_bounds(
            chain.denoise, chain.table, LinearSchedule(0.5, 12.0), ids, torch.arange(len(ids)),
            stagger=0.0, samples=8, seed=0,
        )  # fmt: skip
    excess = terms.sum(1) - chain.nats(ids[:, 0])
    error = float(excess.std() / math.sqrt(len(ids)))
    diffusion, reconstruction, prior = terms.mean(0).tolist()
    assert min(diffusion, reconstruction) > 10 * error
    assert -3 * error < float(excess.mean()) < 3 * error + prior
