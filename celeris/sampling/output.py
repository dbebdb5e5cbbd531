"""Records that sampling hands out."""

from dataclasses import dataclass, field

from celeris.typing import Tensor


@dataclass
class StepEnd:
    """State after one denoiser call, for `callback_on_step_end`.

    Attributes:
        block: number of the block being denoised, from 0.
        step, steps: number of this solver call, from 0, and solver calls per block.
        t: canvas time of the call.
        rows: which rows of the request are still being written.
        logits: (rows, C, V); their argmax is the text at this moment.
        sequences: token ids each of these rows has committed so far.
    """

    block: int
    step: int
    steps: int
    t: float
    rows: list[int]
    logits: Tensor
    sequences: list[list[int]]


@dataclass
class GenerateOutput:
    """What `generate` returns; lists have one entry a row (prompt-major: the samples of a prompt follow each other).

    Attributes:
        prompts: the prompt of each row.
        texts: continuations, cut at EOS.
        sequences: their token ids, without EOS and PAD.
        finish_reasons: "stop" (EOS) or "length".
        nfe: denoiser calls each row took.
        context_passes: calls that wrote context (prefill and commits) each row took.
        seconds: wall time of the whole call.
        prefill_seconds: until the prompt was read into the context; of what writes token by token, until the logits
            of the first token were there. The device has finished by then.
        first_block_seconds: from the call to its first committed text (a block, a token); None where it is not known.
    """

    prompts: list[str]
    texts: list[str]
    sequences: list[list[int]]
    finish_reasons: list[str]
    nfe: list[int]
    context_passes: list[int]
    seconds: float
    prefill_seconds: float
    first_block_seconds: float | None = None
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Real output tokens: no prompt, no EOS, no PAD."""
        return sum(map(len, self.sequences))

    @property
    def tokens_per_forward(self) -> float:
        """Output tokens per forward pass of a row, denoiser calls and commits together."""
        return self.tokens / max(sum(self.nfe) + sum(self.context_passes), 1)
