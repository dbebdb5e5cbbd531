"""Layers that are computed again in backward: the same gradients, twice the calls."""

import torch

from celeris.data.layouts import AllBlocks
from celeris.denoiser.block import Block

from .tiny import BLOCK, MemoryText, fit, tiny_module


def test_gradients_are_equal_also_with_dropout(monkeypatch):
    calls = []
    mlp = Block._mlp
    monkeypatch.setattr(Block, "_mlp", lambda self, y: calls.append(1) or mlp(self, y))
    ids = MemoryText().train.ids[:4]
    batch = AllBlocks(BLOCK, p_given=0.5)(ids, torch.arange(4), seed=0, pad_id=0)
    found = []
    for again in (False, True):
        module = tiny_module(recompute_layers=again)
        with torch.no_grad():
            for p in module.model.parameters():
                p.add_(0.1)  # off the zero initialisation, so that every weight has a gradient
        module.configure_model()
        module.configure_model()  # Lightning may call it twice
        calls.clear()
        torch.manual_seed(5)
        loss = module(module.objective, batch, 7).loss
        forward = len(calls)
        loss.backward()
        found.append(({name: p.grad for name, p in module.model.named_parameters()}, forward, len(calls) - forward))
    (plain, passes, none), (checkpointed, same, again) = found
    assert none == 0 and passes == same and 0 < again <= same  # the self-conditioning pass has no backward
    assert plain.keys() == checkpointed.keys() and sum(grad is not None for grad in plain.values()) > 30
    for name, grad in plain.items():
        assert (grad is None) == (checkpointed[name] is None), name
        assert grad is None or torch.equal(grad, checkpointed[name]), name


def test_a_run_is_the_same_bit_for_bit(tmp_path):
    one, other = (fit(tmp_path / str(k), tiny_module(recompute_layers=k), max_steps=4) for k in (False, True))
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
