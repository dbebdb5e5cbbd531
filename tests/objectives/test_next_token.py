"""The next-token loss, written out token by token."""

import torch

from celeris.objectives.tokens import next_token_loss
from tests.core.small import small_model
from tests.objectives.parts import block_batch, text


def test_each_position_is_scored_on_the_token_after_it_and_pad_is_not():
    model, ids = small_model(), text(2, size=6)
    ids[1, 4:] = model.pad_id
    lengths = (ids != model.pad_id).sum(1)
    context = model.encode_context(ids, lengths)
    log_p = torch.log_softmax(model.next_token_logits(context), -1)
    nats = [-log_p[row, place, ids[row, place + 1]] for row in range(2) for place in range(int(lengths[row]) - 1)]
    assert torch.allclose(next_token_loss(model, block_batch(ids, 6), context), torch.stack(nats).mean())
