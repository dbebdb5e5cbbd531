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


@dataclass(frozen=True)
class Piece:
    """What one committed block adds to one row.

    Attributes:
        row: number of the row in the request.
        block: number of the block, from 0.
        text: goes on where the row's last piece ended and is never taken back; "" where all of the block still waits
            (`celeris.sampling.row_text`).
        finish_reason: "stop" or "length" with the row's last piece, else None.
    """

    row: int
    block: int
    text: str
    finish_reason: str | None


@dataclass
class GenerateOutput:
    """What `generate` returns; lists have one entry a row (prompt-major: the samples of a prompt follow each other).

    Attributes:
        prompts: the prompt of each row.
        texts: continuations, cut at EOS or a stop string.
        sequences: their token ids, without EOS and PAD.
        finish_reasons: "stop" (EOS, or a stop string) or "length".
        nfe: denoiser calls each row took.
        context_passes: calls that wrote context (prefill and commits) each row took.
        seconds: wall time of the whole call.
        prefill_seconds: until the prompt was read into the context; of what writes token by token, until the logits
            of the first token were there. The device has finished by then.
        first_block_seconds: from the call to its first committed text (a block, a token); None where it is not known.
        block_seconds: from the call to each committed block; empty where there are none.
        stops: the stop string that ended each row, None where it was EOS or the length; empty where there are none.
        slid: how often each row's context slid (`celeris.sampling.overflow`); empty where it cannot.
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
    block_seconds: list[float] = field(default_factory=list)
    stops: list[str | None] = field(default_factory=list)
    slid: list[int] = field(default_factory=list)

    @property
    def whole_texts(self) -> list[str]:
        """Each prompt with its text."""
        return [prompt + text for prompt, text in zip(self.prompts, self.texts, strict=True)]

    def row_tokens_per_forward(self, row: int) -> float:
        """As `tokens_per_forward`, of one row."""
        return len(self.sequences[row]) / max(self.nfe[row] + self.context_passes[row], 1)

    @property
    def tokens(self) -> int:
        """Real output tokens: no prompt, no EOS, no PAD."""
        return sum(map(len, self.sequences))

    @property
    def tokens_per_forward(self) -> float:
        """Output tokens per forward pass of a row, denoiser calls and commits together."""
        return self.tokens / max(sum(self.nfe) + sum(self.context_passes), 1)
