"""The transformer that reads `[context | canvas]`: attention, conditioning, rotary angles, the exact context cache."""

from celeris.denoiser.context import Context
from celeris.denoiser.token_input import TableInput, TokenInput
from celeris.denoiser.transformer import Transformer

__all__ = ["Context", "TableInput", "TokenInput", "Transformer"]
