"""DiffusionLM: embedding, schedule, denoiser and rounding head joined into one language model."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from celeris.denoiser import Context, Transformer
from celeris.embedding import EmbeddingTable
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.noise import Schedule
from celeris.noise.path import canvas_levels
from celeris.rounding import Denoised, RoundingHead, SoftmaxHead, evidence, pick
from celeris.typing import Gamma, Ids, Latent, Logits, Mask, Table


class DiffusionLM(LanguageModel):
    """A continuous-embedding diffusion language model over rows `[context | canvas]`.

    Args:
        vocab_size: V.
        embedding: ids → x0.
        schedule: gamma(t).
        denoiser: the trunk.
        head: hidden states → tokens; a `SoftmaxHead` with evidence when None.
        max_length: the window, context and canvas together, in tokens.
        block_length: C, the canvas length it was trained with (sampling's default).
        stagger: how far apart the positions of a canvas start (`celeris.noise.path`); default of sampling and bound.
        posterior_input: the network is shown what each position may be given its own evidence, beside z.
        self_conditioning: the network takes the x0_hat of an earlier step as an input.
        next_token_head: the context stream also predicts the next token (auxiliary loss; autoregressive decoder).
        pad_id, eos_id, unk_id, role_ids: special tokens; PAD, UNK and roles are never produced.
    """

    system = "celeris"
    decoders = ("diffusion", "autoregressive")

    def __init__(
        self,
        vocab_size: int,
        embedding: EmbeddingTable,
        schedule: Schedule,
        denoiser: Transformer,
        max_length: int,
        block_length: int,
        head: RoundingHead | None = None,
        stagger: float = 0.0,
        posterior_input: bool = True,
        self_conditioning: bool = True,
        next_token_head: bool = True,
        pad_id: int = 0,
        eos_id: int = 1,
        unk_id: int | None = None,
        role_ids: Sequence[int] = (),
    ) -> None:
        super().__init__(vocab_size, max_length, pad_id, eos_id, unk_id, role_ids)
        if not 1 <= block_length <= max_length:
            raise CelerisError(f"block_length {block_length} must lie in 1 … max_length = {max_length}.")
        self.block_length = block_length
        if stagger < 0:
            raise CelerisError(f"stagger is {stagger:g}; it must be ≥ 0 (0: all positions of a canvas move together).")
        self.stagger, self.has_next_token_head = stagger, next_token_head
        self.posterior_input, self.self_conditioning = posterior_input, self_conditioning
        self.embedding, self.schedule, self.denoiser = embedding, schedule, denoiser
        self.rounding = head or SoftmaxHead(denoiser.width, vocab_size)
        self.rounding.forbid(self.forbidden)
        embedding.check_evidence(posterior_input or getattr(self.rounding, "evidence", False))
        inputs = embedding.dim * (1 + self_conditioning)
        taken = 0 if denoiser.canvas_in is None else denoiser.canvas_in.in_features
        if taken != inputs:
            raise CelerisError(
                f"The denoiser takes {taken} canvas features and the model feeds {inputs}; "
                "set denoiser.features to 1 + self_conditioning."
            )

    @property
    def trunk(self) -> nn.Module:
        return self.denoiser

    def table_parameters(self) -> list[nn.Parameter]:
        return list(self.embedding.parameters())

    def schedule_parameters(self) -> list[nn.Parameter]:
        return list(self.schedule.parameters())

    def set_unigram(self, counts: Tensor) -> None:
        self.rounding.set_unigram(counts)

    # -- the two streams ------------------------------------------------------------------------------------------

    def encode_context(self, ids: Ids, lengths: Ids | None = None, past: Context | None = None) -> Context:
        """Run clean tokens (B, T) as context, after `past`; `lengths` (B,) are the real ones per row (default: all)."""
        if lengths is None:
            lengths = torch.full((ids.shape[0],), ids.shape[1], device=ids.device)
        if ids.shape[1] == 0:
            return past or self.denoiser.empty(ids.shape[0], ids.device)
        return self.denoiser.context(self.denoiser.token_in.known(ids, self.embedding.table), lengths, past)

    def next_token_logits(self, context: Context) -> Logits:
        """(B, S, V) logits of the token after each context position."""
        if not self.has_next_token_head:
            raise CelerisError("This checkpoint has no next-token head; train with model.next_token_head=true.")
        return self.rounding(context.hidden, self.embedding.table)

    def following_logits(self, context: Context) -> Logits:
        """(B, V) logits of the token after the last one of each row, which must not be empty."""
        last = (context.lengths - 1)[:, None, None].expand(-1, 1, context.hidden.shape[-1])
        return self.next_token_logits(Context(context.lengths, context.layers, context.hidden.gather(1, last)))[:, 0]

    def predict(
        self,
        z: Latent,
        gamma: Gamma,
        context: Context,
        start: Ids,
        self_cond: Latent | None = None,
        given: Mask | None = None,
        valid: Mask | None = None,
    ) -> Denoised:
        """Read noisy canvas blocks.

        Args:
            z: (B, N, C, D); at `given` positions the clean x0.
            gamma: (B, N, C), or (B, N, 1) when a block stands at one level.
            context: from `encode_context`; block n sees its first `start[b, n]` positions.
            self_cond: (B, N, C, D) x0_hat of an earlier, noisier step; zeros when None.
            given, valid: (B, N, C).

        Returns:
            Logits (B, N, C, V) float32, and x0_hat (B, N, C, D) where the head predicts it.
        """
        table = self.embedding.table
        features = [z]
        if self.self_conditioning:
            features.append(torch.zeros_like(z) if self_cond is None else self_cond.to(z.dtype))
        if given is not None:
            features = [torch.where(given[..., None], z, x) for x in features]
        own = evidence(z, gamma, table) if self.posterior_input or given is not None else None
        guess = self._guess(z, own, given, table)
        hidden = self.denoiser.canvas(guess, torch.cat(features, -1), gamma, given, valid, start, context)
        return self.rounding.denoised(hidden, z, gamma, table, own)

    def _guess(self, z: Latent, own: Logits | None, given: Mask | None, table: Table) -> Tensor:
        """(B, N, C, H) what each position may be by its own evidence, as the trunk reads tokens."""
        if own is None:
            return z.new_zeros(*z.shape[:-1], self.denoiser.width)
        may_be = torch.softmax(own + self.rounding.prior, -1)
        if given is not None:  # z is x0 there
            known = F.one_hot(own.argmax(-1), self.vocab_size).to(may_be.dtype)
            may_be = torch.where(given[..., None], known, may_be if self.posterior_input else 0.0)
        return self.denoiser.token_in.mean(may_be, table)

    # -- the loop in the reader's own hands -----------------------------------------------------------------------

    def gamma_at(self, t: Tensor | float, block_length: int, stagger: float | None = None) -> Gamma:
        """gamma of the C positions of a canvas whose clock shows t (…): (…, C), float64."""
        clock = torch.as_tensor(t, dtype=torch.float64, device=self.device)
        return self.schedule.gamma(canvas_levels(clock, block_length, self.stagger if stagger is None else stagger).u)

    def denoise(
        self,
        z: Latent,
        t: Tensor | float,
        context: Context | None = None,
        self_cond: Latent | None = None,
        stagger: float | None = None,
    ) -> Denoised:
        """Logits (B, C, V) of one noisy block z (B, C, D) at canvas time t (a number or (B,))."""
        context = context or self.denoiser.empty(z.shape[0], z.device)
        gamma = self.gamma_at(t, z.shape[1], stagger).to(z.dtype).expand(z.shape[:2])
        carried = None if self_cond is None else self_cond[:, None]
        out = self.predict(z[:, None], gamma[:, None], context, context.lengths[:, None], carried)
        return Denoised(out.logits[:, 0], None if out.vector is None else out.vector[:, 0])

    def x0_hat(self, out: Denoised, temperature: float = 1.0) -> Latent:
        """(*shape, D) float32 estimate of x0 (`Denoised.x0_hat`)."""
        return out.x0_hat(self.embedding.table, temperature)

    def round(self, out: Denoised) -> Ids:
        """Most probable tokens."""
        return pick(out.logits)
