"""Latent → token distribution → x0_hat and ids."""

from celeris.rounding.head import Denoised, RoundingHead, SoftmaxHead, evidence, expected_embedding, pick

__all__ = ["Denoised", "RoundingHead", "SoftmaxHead", "evidence", "expected_embedding", "pick"]
