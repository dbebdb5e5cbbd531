"""The autoregressive baseline: a Llama of `transformers`, its training loss and its exact likelihood."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from celeris.batch import Batch
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.objectives.objective import ObjectiveOutput, Term, total
from celeris.objectives.tokens import answers_only, mean_cross_entropy
from celeris.typing import Ids, Logits

NEVER = -1e9
"""Logit of a token that is never produced, as everywhere in the package: finite, so that a target can be scored."""


class Llama(LanguageModel):
    """LlamaForCausalLM (2302.13971: pre-norm, SwiGLU, rotary positions, as many key heads as heads).

    PAD, which is no text, stands in front of every row as the start token, so that a row's first token has a
    probability as well.

    Args:
        vocab_size: V.
        max_length: the window in tokens, the start token not counted.
        width: H.
        depth: layers.
        heads: attention heads; H must be a multiple of 2·heads.
        mlp_width: of the SwiGLU.
        tie_embeddings: the output layer is the embedding table.
        attention: "sdpa", "eager" or another back-end that transformers knows.
        pad_id, eos_id, unk_id, role_ids: special tokens; PAD, UNK and roles are never produced.

    Raises:
        CelerisError: transformers is not installed, or the sizes do not fit.
    """

    system = "llama"
    decoders = ("llama",)
    never: Tensor

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        width: int,
        depth: int,
        heads: int,
        mlp_width: int,
        tie_embeddings: bool = False,
        attention: str = "sdpa",
        pad_id: int = 0,
        eos_id: int = 1,
        unk_id: int | None = None,
        role_ids: Sequence[int] = (),
    ) -> None:
        super().__init__(vocab_size, max_length, pad_id, eos_id, unk_id, role_ids)
        if width % (2 * heads):
            raise CelerisError(f"width {width} must be a multiple of 2·heads = {2 * heads}; change width or heads.")
        config_class, network_class = _classes()
        config = config_class(
            vocab_size=vocab_size,
            hidden_size=width,
            intermediate_size=mlp_width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            max_position_embeddings=max_length + 1,
            tie_word_embeddings=tie_embeddings,
            attn_implementation=attention,
            pad_token_id=None,  # transformers would fix the start token's embedding at zero
            bos_token_id=pad_id,
            eos_token_id=eos_id,
        )
        self.network: Any = network_class(config)
        never = torch.zeros(vocab_size)
        never[self.forbidden] = NEVER
        self.register_buffer("never", never, persistent=False)
        if tie_embeddings:
            self.register_state_dict_post_hook(_leave_out_the_tied)
            self.register_load_state_dict_pre_hook(_put_back_the_tied)

    @property
    def trunk(self) -> nn.Module:
        network: nn.Module = self.network.model
        return network

    def table_parameters(self) -> list[nn.Parameter]:
        return [self.network.model.embed_tokens.weight]

    def allowed(self, logits: Tensor) -> Logits:
        """The network's logits in float32, those of PAD and UNK at −1e9."""
        return logits.float() + self.never

    def logits(self, ids: Ids) -> Logits:
        """(B, L) right-padded rows → (B, L, V) float32: of each token given those before it, the first one included."""
        inputs = F.pad(ids[:, :-1], (1, 0), value=self.pad_id)
        return self.allowed(self.network(input_ids=inputs, use_cache=False).logits)


class LlamaNextToken(nn.Module):
    """Mean −log p(token | tokens before it) in nats over all tokens of the rows, the first one included.

    The prompt of a pair (`Batch.asked`) is read and not counted.
    """

    def forward(self, model: Llama, batch: Batch, seed: int) -> ObjectiveOutput:
        size, real = batch.context.shape[1], (batch.canvas != model.pad_id).sum(-1)
        end = int((batch.start + real).max())
        if end > size:
            raise CelerisError(
                f"The rows have {end} tokens and the context stream only {size} of them, so next-token prediction "
                "would not see the rest; choose layout=all_blocks, which puts whole rows there."
            )
        logits = model.logits(batch.context)
        targets = answers_only(batch.context, batch.asked, model.pad_id)
        return total({"loss_next_token": Term(mean_cross_entropy(logits, targets, batch, model.pad_id))})

    def counts(self, model: Llama, batch: Batch, seed: int) -> dict[str, Tensor]:
        return {"next_token": (answers_only(batch.context, batch.asked, model.pad_id) != model.pad_id).sum(1)}


@torch.no_grad()
def llama_nats(model: Llama, rows: Ids, *, batch_size: int = 32) -> Tensor:
    """Exact −log p of each row (n, L) in nats, PAD not counted: (n,) float64."""
    nats = torch.zeros(len(rows), dtype=torch.float64)
    for chunk in torch.arange(len(rows)).split(batch_size):
        ids = rows[chunk].to(model.device)
        loss = F.cross_entropy(model.logits(ids).flatten(0, 1), ids.flatten(), reduction="none").view_as(ids)
        nats[chunk] = (loss.double() * (ids != model.pad_id)).sum(1).cpu()
    return nats


_TIED, _TABLE = "network.lm_head.weight", "network.model.embed_tokens.weight"


def _leave_out_the_tied(model: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """One matrix under two names is one matrix in a file (safetensors refuses the second)."""
    state.pop(prefix + _TIED, None)


def _put_back_the_tied(model: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    if prefix + _TABLE in state:
        state.setdefault(prefix + _TIED, state[prefix + _TABLE])


def _classes() -> tuple[Any, Any]:
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise CelerisError("The Llama baseline needs transformers; pip install 'transformers>=5'.") from error
    return LlamaConfig, LlamaForCausalLM
