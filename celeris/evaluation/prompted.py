"""Does the model use its prompt: is the true prompt better than another one for the continuation that followed it?"""

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from celeris.errors import CelerisError
from celeris.evaluation.record import Section, Subject, Table
from celeris.evaluation.windows import PromptPairs, prompt_pairs
from celeris.model import DiffusionLM
from celeris.noise import add_noise
from celeris.streams import generator
from celeris.typing import Float, Int


class ContinuationLoss(Protocol):
    """Loss in nats/token of each continuation (n, C) after its prompt (n, S), the same noise whatever the prompt."""

    definition: str

    def __call__(self, prompts: Int[Tensor, "n S"], continuations: Int[Tensor, "n C"]) -> Float[Tensor, "n"]: ...


class DenoisingLoss:
    """Cross-entropy of the continuation's blocks at evenly spaced times of the sampler's path, no self-conditioning.

    Each block sees the prompt and the true blocks before it, as in generation. The noise of continuation k depends on
    its row number, the level and the seed only, so the losses of two prompts differ by the prompts alone.

    Args:
        model: in evaluation mode.
        block_length: tokens denoised together; divides the continuation's length.
        levels: times t = (i + ½)/levels at which the canvas is noised.
        seed: of the noise.
        batch_size: rows of one forward pass.
    """

    def __init__(self, model: DiffusionLM, block_length: int, levels: int, seed: int, batch_size: int = 32):
        self.model = model
        self.block_length = block_length
        self.levels = levels
        self.seed = seed
        self.batch_size = batch_size
        self.definition = (
            f"mean cross-entropy (nats/token) of the continuation's blocks at {levels} evenly spaced times of the "
            "sampling path, given the prompt and the true blocks before"
        )

    @torch.inference_mode()
    def __call__(self, prompts: Int[Tensor, "n S"], continuations: Int[Tensor, "n C"]) -> Float[Tensor, "n"]:
        parts = []
        for first in range(0, len(prompts), self.batch_size):
            rows = slice(first, first + self.batch_size)
            parts.append(self._rows(prompts[rows], continuations[rows], first))
        return torch.cat(parts)

    def _rows(self, prompts: Tensor, continuations: Tensor, first: int) -> Tensor:
        model, block = self.model, self.block_length
        rows, length = continuations.shape
        ids = torch.cat([prompts, continuations], 1).to(model.device)
        canvas = ids[:, prompts.shape[1] :].reshape(rows, length // block, block)
        start = prompts.shape[1] + torch.arange(0, length, block, device=model.device).expand(rows, -1)
        context = model.encode_context(ids)
        x0 = model.embedding(canvas)
        total = torch.zeros(rows, dtype=torch.float64, device=model.device)
        for level in range(self.levels):
            gamma = model.gamma_at((level + 0.5) / self.levels, block).to(torch.float32).expand(canvas.shape)
            noise = [
                torch.randn(x0.shape[1:], generator=generator(self.seed, f"prompted {level}", first + k))
                for k in range(rows)
            ]
            z = add_noise(x0, gamma, torch.stack(noise).to(x0))
            logits = model.predict(z, gamma, context, start).logits
            loss = F.cross_entropy(logits.flatten(0, -2), canvas.flatten(), reduction="none")
            total += loss.view(rows, length).double().mean(1) / self.levels
        return total


def share_won(loss: ContinuationLoss, pairs: PromptPairs) -> Tensor:
    """(n,) gain of the true prompt over the other one in nats/token; positive where it wins."""
    return loss(pairs.others, pairs.continuations) - loss(pairs.prompts, pairs.continuations)


class Prompted:
    """Share of held-out paragraphs whose true first half gives the second half a lower loss than another first half.

    Args:
        pairs: paragraphs compared.
        prompt_length: tokens of the prompt; None: half the model's window.
        continuation_length: tokens of the continuation, rounded down to whole blocks; None: half the window.
        levels: noise levels of the loss.
        batch_size: rows of one forward pass.
    """

    def __init__(
        self,
        pairs: int = 200,
        prompt_length: int | None = None,
        continuation_length: int | None = None,
        levels: int = 8,
        batch_size: int = 32,
    ):
        for name, value in (("prompt_length", prompt_length), ("continuation_length", continuation_length)):
            if value is not None and value < 1:
                raise CelerisError(f"{name}={value} leaves no tokens; prompt use needs at least 1.")
        self.pairs = pairs
        self.prompt_length = prompt_length
        self.continuation_length = continuation_length
        self.levels = levels
        self.batch_size = batch_size

    def __call__(self, subject: Subject) -> Section:
        model = subject.model
        prompt_length = self.prompt_length or model.max_length // 2
        wanted = self.continuation_length or model.max_length - prompt_length
        if not 1 <= wanted <= model.max_length - prompt_length:
            raise CelerisError(
                f"A prompt of {prompt_length} and a continuation of {wanted} tokens do not fit into the window of "
                f"{model.max_length}; set a smaller prompt_length or continuation_length."
            )
        block = min(model.block_length, wanted)
        length = wanted // block * block
        loss = DenoisingLoss(model, block, self.levels, subject.seed, self.batch_size)
        pairs = prompt_pairs(
            subject.data.val_texts(), subject.tokenizer, self.pairs, prompt_length, length, subject.seed
        )
        if not len(pairs):
            reason = (
                f"Prompt use is left out: no two held-out paragraphs have halves of {prompt_length} and {length} "
                "tokens; set a smaller prompt_length and continuation_length."
            )
            return Section("Prompt use", {"pairs": 0, "reason": reason}, [], unavailable=[reason])
        gains = share_won(loss, pairs)
        return _section(subject, gains, loss.definition, prompt_length, length)


def _section(subject: Subject, gains: Tensor, definition: str, prompt_length: int, length: int) -> Section:
    share = float((gains > 0).double().mean())
    error = math.sqrt(share * (1 - share) / len(gains))
    record = {
        **subject.provenance(),
        "definition": definition,
        "pairs": len(gains),
        "prompt_length": prompt_length,
        "continuation_length": length,
        "share_true_prompt_better": share,
        "standard_error": error,
        "mean_gain_nats_per_token": float(gains.mean()),
    }
    table = Table(
        f"Prompt use: {len(gains)} held-out paragraphs, {prompt_length} tokens of prompt, {length} of continuation",
        ["true prompt better", "standard error", "mean gain, nats/token"],
        [[f"{share:.1%}", f"{error:.1%}", f"{record['mean_gain_nats_per_token']:.4f}"]],
        [f"Loss: {definition}; the other prompt is that of another paragraph; chance is 50 %."],
    )
    sentence = f"The true prompt beats another paragraph's in {share:.0%} of {len(gains)} held-out continuations."
    return Section("Prompt use", record, [table], headline=[sentence], scalars={"prompted/share": share})
