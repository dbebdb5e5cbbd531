"""Next-token prediction alone: the autoregressive twin, with the same trunk, data and step."""

from torch import Tensor, nn

from celeris.batch import Batch
from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.objectives.objective import ObjectiveOutput, Term, total
from celeris.objectives.tokens import next_token_loss, next_tokens


class NextToken(nn.Module):
    """Mean −log p(token | tokens before it) in nats; no noise is drawn and no canvas is read."""

    def forward(self, model: DiffusionLM, batch: Batch, seed: int) -> ObjectiveOutput:
        size, real = batch.context.shape[1], (batch.canvas != model.pad_id).sum(-1)
        end = int((batch.start + real).max())
        if size < 2 or end > size:
            raise CelerisError(
                f"The rows have {end} tokens and the context stream only {size} of them, so next-token prediction "
                "would not see the rest; choose layout=all_blocks, which puts whole rows of at least 2 tokens there."
            )
        context = model.encode_context(batch.context, (batch.context != model.pad_id).sum(1))
        return total({"loss_next_token": Term(next_token_loss(model, batch, context))})

    def counts(self, model: DiffusionLM, batch: Batch, seed: int) -> dict[str, Tensor]:
        return {"next_token": (next_tokens(model.pad_id, batch) != model.pad_id).sum(1)}
