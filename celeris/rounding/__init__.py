"""Latent → token distribution → x0_hat and ids."""

from celeris.rounding.head import Denoised, RoundingHead, SoftmaxHead, evidence, expected_embedding, pick
from celeris.rounding.vector import VectorHead, tied_logits

__all__ = [
    "Denoised",
    "RoundingHead",
    "SoftmaxHead",
    "VectorHead",
    "evidence",
    "expected_embedding",
    "pick",
    "tied_logits",
]
