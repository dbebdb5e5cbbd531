"""The masked-diffusion baseline (MDLM, 2406.07524) on the package's own trunk: its loss and its bound.

Tokens are replaced by MASK one by one, each masked with probability t at time t (alpha_t = 1 − t, "log-linear"). The
network reads the rest and predicts what is masked; nothing else depends on t, so neither does the network.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from celeris.batch import Batch
from celeris.denoiser import TableInput, TokenInput, Transformer
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.noise.times import golden_uniform
from celeris.objectives.objective import ObjectiveOutput, Term, total
from celeris.objectives.tokens import token_loss
from celeris.rounding import SoftmaxHead
from celeris.streams import generator, stream
from celeris.typing import Ids, Logits, Mask


class MaskedLM(LanguageModel):
    """A transformer that sees the whole window and predicts its masked positions.

    Parameterisation SUBS (2406.07524): MASK, PAD and UNK are never predicted, and what is not masked is
    carried over.

    Args:
        vocab_size: V; the id V is MASK.
        max_length: the window in tokens.
        width, depth, heads, mlp_ratio, mixing, dropout, attention, left_neighbour: of `celeris.denoiser.Transformer`.
        cond_dim: of the one vector that stands where the noise level enters that trunk.
        embedding_dim: tokens enter by a table of this width and a linear map, for large vocabularies; None: by a
            vector of width H each.
        pad_id, eos_id, unk_id, role_ids: special tokens; PAD, UNK and roles are never produced.
    """

    system = "mdlm"
    decoders = ("masked",)

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        width: int,
        depth: int,
        heads: int,
        mlp_ratio: float = 4.0,
        mixing: tuple[int, int] | None = None,
        dropout: float = 0.0,
        attention: str = "auto",
        left_neighbour: bool = True,
        cond_dim: int = 16,
        embedding_dim: int | None = None,
        pad_id: int = 0,
        eos_id: int = 1,
        unk_id: int | None = None,
        role_ids: Sequence[int] = (),
    ) -> None:
        super().__init__(vocab_size, max_length, pad_id, eos_id, unk_id, role_ids)
        self.mask_id = vocab_size
        self.table = None if embedding_dim is None else nn.Embedding(vocab_size + 1, embedding_dim)
        token_in = TokenInput(vocab_size + 1, width) if embedding_dim is None else TableInput(embedding_dim, width)
        self.denoiser = Transformer(
            embedding_dim or width,
            width,
            depth,
            heads,
            cond_dim=cond_dim,
            features=0,
            mlp_ratio=mlp_ratio,
            mixing=mixing,
            dropout=dropout,
            attention=attention,
            left_neighbour=left_neighbour,
            token_in=token_in,
        )
        self.denoiser.given.requires_grad_(False)  # a position that is not masked says so by its token
        self.head = SoftmaxHead(width, vocab_size, evidence=False)
        self.head.forbid(self.forbidden)

    @property
    def trunk(self) -> nn.Module:
        return self.denoiser

    def table_parameters(self) -> list[nn.Parameter]:
        token_in = self.denoiser.token_in
        return list(token_in.parameters()) if self.table is None else list(self.table.parameters())

    def set_unigram(self, counts: Tensor) -> None:
        self.head.set_unigram(counts)

    def hidden(self, ids: Ids, valid: Mask | None = None) -> Tensor:
        """(B, L) tokens and MASKs → (B, L, H); `valid` (B, L) is False on PAD, None when there is none."""
        weight = self.denoiser.token_in.weight if self.table is None else self.table.weight
        tokens = self.denoiser.token_in.known(ids, weight)
        start = torch.zeros(len(ids), 1, dtype=torch.long, device=ids.device)
        level = torch.zeros(1, 1, 1, device=ids.device)
        hidden: Tensor = self.denoiser.canvas(
            tokens[:, None],
            None,
            level,
            None,
            None if valid is None else valid[:, None],
            start,
            self.denoiser.empty(len(ids), ids.device),
        )
        return hidden[:, 0]

    def read(self, hidden: Tensor) -> Logits:
        """(*shape, H) → (*shape, V) float32 logits of masked positions."""
        return self.head(hidden, self.head.project.weight)

    def logits(self, ids: Ids, valid: Mask | None = None) -> Logits:
        """(B, L) → (B, L, V) float32 logits of what each position would be if it is masked."""
        return self.read(self.hidden(ids, valid))

    def log_probabilities(self, ids: Ids, valid: Mask | None = None) -> Logits:
        """(B, L) → (B, L, V) log p of each position's clean token; one that is not masked is itself (SUBS)."""
        masked = (ids == self.mask_id)[..., None]
        itself = F.one_hot(ids.clamp_max(self.vocab_size - 1), self.vocab_size).log()
        return torch.where(masked, self.logits(ids, valid).log_softmax(-1), itself)


class MaskedDiffusion(nn.Module):
    """Continuous-time bound per token, E_t[1/t · Σ −log p(masked token | the rest)] / tokens (2406.07524).

    t is spread evenly over consecutive samples; times and masks depend on (seed, sample) only.
    """

    def forward(self, model: MaskedLM, batch: Batch, seed: int) -> ObjectiveOutput:
        if batch.canvas.shape[1] != 1 or batch.context.shape[1] != batch.canvas.shape[2]:
            raise CelerisError(
                f"Masked diffusion reads a row as one canvas, and this one has {batch.canvas.shape[1]}; "
                "set block_length to length, with layout=all_blocks."
            )
        ids, given = batch.canvas[:, 0], batch.given[:, 0]
        t, uniform = draw_noise(batch.index, ids.shape[1], seed)
        valid = ids != model.pad_id
        asked = valid & ~given
        masked = (uniform < t[:, None]).to(ids.device) & asked
        logits = model.logits(ids.masked_fill(masked, model.mask_id), valid if batch.ragged else None)
        weight = masked / t.to(ids.device, torch.float32)[:, None]
        tokens = batch.over("asked", asked.sum().float())
        return total({"loss_masked": Term((token_loss(logits, ids) * weight).sum() / tokens)})

    def counts(self, model: MaskedLM, batch: Batch, seed: int) -> dict[str, Tensor]:
        return {"asked": ((batch.canvas != model.pad_id) & ~batch.given).flatten(1).sum(1)}


def draw_noise(index: Tensor, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Times (B,) in (0, 1] and a uniform number of each position (B, L), float64, on the CPU.

    Args:
        index: (B,) sample numbers; a row's numbers depend on its own and the seed.
    """
    t = 1 - golden_uniform(index, stream(seed, "masked time"))
    keys = [generator(seed, "masks", key) for key in index.tolist()]
    return t, torch.stack([torch.rand(length, dtype=torch.float64, generator=key) for key in keys])


@torch.no_grad()
def masked_bound(model: MaskedLM, rows: Ids, *, samples: int = 8, seed: int = 0, batch_size: int = 32) -> Tensor:
    """Upper bound on −log p of each row (n, L) in nats, PAD not counted: (n,) float64.

    The same bound as the loss's, summed over how many tokens are masked instead of integrated over t (2406.03736;
    2502.09992, eq. 6): E over n uniform on 1 … L of L/n · Σ −log p over a random subset of n positions.

    Args:
        samples: subsets of each row; their sizes are stratified over 1 … L.
        seed: sizes and subsets of row k are keyed by (seed, k), so nothing depends on `batch_size`.
    """
    if samples < 1:
        raise CelerisError(f"samples is {samples}; the bound needs at least 1 subset of each row.")
    nats = torch.zeros(len(rows), dtype=torch.float64)
    for chunk in torch.arange(len(rows)).split(batch_size):
        ids = rows[chunk].to(model.device)
        valid = ids != model.pad_id
        lengths = valid.sum(1)
        keys = [generator(seed, "masked bound", key) for key in chunk.tolist()]
        for number in range(samples):
            place = torch.stack([torch.rand((), dtype=torch.float64, generator=key) for key in keys])
            order = torch.stack([torch.rand(ids.shape[1], generator=key) for key in keys]).to(ids.device)
            share = ((number + place) / samples).to(ids.device)
            count = (share * lengths).long().clamp_max(lengths - 1) + 1
            rank = order.masked_fill(~valid, 2.0).argsort(1).argsort(1)  # PAD ranks last
            masked = (rank < count[:, None]) & valid
            logits = model.logits(ids.masked_fill(masked, model.mask_id), valid)
            loss = token_loss(logits, ids).double() * masked
            nats[chunk] += (loss.sum(1) * lengths / count).cpu() / samples
    return nats
