"""Text of the autoregressive baseline by transformers' own `generate` with its key-value cache."""

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from celeris.baselines.llama import Llama
from celeris.errors import CelerisError
from celeris.sampling.autoregressive import gumbel
from celeris.sampling.device import synchronize
from celeris.sampling.output import GenerateOutput
from celeris.sampling.request import Request, prepare
from celeris.typing import Ids


@torch.no_grad()
def generate_llama(
    model: Llama,
    prompts: Sequence[str],
    *,
    num_samples: int = 1,
    max_new_tokens: int = 128,
    temperature: float = 1.0,
    seed: int = 0,
) -> GenerateOutput:
    """Continue `prompts` token by token; arguments and seeds as in `celeris.sampling.generate`.

    `nfe` of the output is 0; `context_passes` counts each row's forward passes, that over the prompt included.
    """
    if temperature < 0:
        raise CelerisError(f"temperature is {temperature:g}; it must be ≥ 0 (0: always the most probable token).")
    began = time.perf_counter()
    request = prepare(model, prompts, num_samples, max_new_tokens, seed)
    ids, mask = left_padded(model, request)
    sampler = Sampler(model, temperature, request.generators)
    written = write(model, ids, mask, sampler, max_new_tokens)
    sequences, reasons = [], []
    for tokens in written[:, ids.shape[1] :].tolist():
        stopped = model.eos_id in tokens
        sequences.append(tokens[: tokens.index(model.eos_id)] if stopped else tokens)
        reasons.append("stop" if stopped else "length")
    return GenerateOutput(
        prompts=request.prompts,
        texts=[request.tokenizer.decode(tokens) for tokens in sequences],
        sequences=sequences,
        finish_reasons=reasons,
        nfe=[0] * len(sequences),
        context_passes=[
            len(tokens) + (reason == "stop") for tokens, reason in zip(sequences, reasons, strict=True)
        ],
        seconds=time.perf_counter() - began,
        prefill_seconds=sampler.first - began,
        first_block_seconds=sampler.token - began,
    )  # fmt: skip


def write(model: Llama, ids: Ids, mask: Tensor, sampler: "Sampler", max_new_tokens: int, **more: Any) -> Any:
    """transformers' `generate` from ids (B, 1 + S), each next token by `sampler`; `more` goes to GenerationConfig."""
    from transformers import GenerationConfig

    settings = GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,  # the sampler has drawn; what is left is to take the largest
        eos_token_id=model.eos_id,
        pad_token_id=model.pad_id,
        bos_token_id=model.pad_id,
        use_cache=True,
        **more,
    )
    return model.network.generate(ids, attention_mask=mask, generation_config=settings, logits_processor=[sampler])


def left_padded(model: Llama, request: Request) -> tuple[Tensor, Tensor]:
    """Ids (B, 1 + S), the start token before each prompt and padding before that, and their mask."""
    ids = F.pad(request.ids, (1, 0), value=model.pad_id)
    places = torch.arange(ids.shape[1], device=ids.device) - (request.ids.shape[1] - request.lengths)[:, None]
    mask = places >= 0
    return torch.where(mask, ids.gather(1, places.clamp_min(0)), model.pad_id), mask.long()


class Sampler:
    """A logits processor: log p/T and Gumbel noise, one generator a row, so that the largest is an exact sample."""

    def __init__(self, model: Llama, temperature: float, generators: Sequence[torch.Generator]) -> None:
        self.model, self.temperature, self.generators = model, temperature, generators
        self.first = self.token = 0.0
        """When the first logits and the first token were there, on the clock of time.perf_counter."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.first:
            return self._drawn(scores)
        synchronize(scores.device)  # twice a call, at its first token: what is queued is not yet done
        self.first = time.perf_counter()
        drawn = self._drawn(scores)
        synchronize(scores.device)
        self.token = time.perf_counter()
        return drawn

    def _drawn(self, scores: Tensor) -> Tensor:
        logits = self.model.allowed(scores)
        if self.temperature == 0:
            return logits
        uniform = torch.stack(
            [
                torch.rand(logits.shape[-1], dtype=torch.float64, device=logits.device, generator=g)
                for g in self.generators
            ]
        )
        return logits.double() / self.temperature + gumbel(uniform)
