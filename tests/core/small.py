"""A small model for tests; gates and heads are moved off zero so that every path matters."""

import torch

from celeris.denoiser import Transformer
from celeris.embedding import TokenEmbedding
from celeris.model import DiffusionLM
from celeris.noise import LossCDFSchedule
from celeris.streams import generator


def small_model(
    vocab_size: int = 13,
    dim: int = 8,
    mixing=(3, 2),
    attention: str = "auto",
    self_conditioning: bool = True,
    token_in=None,
    **options,
) -> DiffusionLM:
    torch.manual_seed(0)
    denoiser = Transformer(
        dim,
        32,
        2,
        2,
        cond_dim=16,
        features=1 + self_conditioning,
        mixing=mixing,
        attention=attention,
        token_in=token_in,
    )
    arguments = {"max_length": 64, "block_length": 8, "self_conditioning": self_conditioning} | options
    model = DiffusionLM(vocab_size, TokenEmbedding(vocab_size, dim), LossCDFSchedule(-4, 9), denoiser, **arguments)
    rng = generator(0, "test weights")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=rng))
    return model.eval()
