"""Latent → token distribution → x0_hat and ids."""

from celeris.rounding.head import RoundingHead, evidence, expected_embedding, pick

__all__ = ["RoundingHead", "evidence", "expected_embedding", "pick"]
