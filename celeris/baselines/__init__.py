"""What a diffusion model of continuous embeddings is compared with, trained by the same task on the same rows."""

from celeris.baselines.llama import Llama, LlamaNextToken, llama_nats
from celeris.baselines.llama_sampling import generate_llama
from celeris.baselines.masked import MaskedDiffusion, MaskedLM, masked_bound
from celeris.baselines.masked_sampling import generate_masked

__all__ = [
    "Llama",
    "LlamaNextToken",
    "MaskedDiffusion",
    "MaskedLM",
    "generate_llama",
    "generate_masked",
    "llama_nats",
    "masked_bound",
]
