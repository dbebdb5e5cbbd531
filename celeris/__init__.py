"""Celeris: continuous-embedding diffusion language models, trained, sampled and measured."""

__version__ = "0.1.0"
