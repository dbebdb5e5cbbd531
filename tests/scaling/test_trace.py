"""The counted step against the real one: bytes of the states, FLOPs, and what the forward pass keeps."""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from celeris.evaluation.flops import UNCOUNTED
from celeris.language_model import LanguageModel, passes
from celeris.scaling.ledger import Ledger, Work
from celeris.scaling.small import Size, batch_of, objective_of, optimizer_of, spec_of, trace_of
from celeris.scaling.states import count_states
from celeris.scaling.trace import Trace, trace_step
from celeris.training.ema import EMA
from celeris.training.recompute import recompute
from tests.training.tiny import fit, tiny_module

SIZE = Size(width=64, depth=3, vocab_size=90, rows=2, length=64)


def real_model(again: bool = False) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel.from_spec(spec_of(SIZE))
    if again:
        recompute(model.layers)
    return model


def real_trace() -> Trace:
    """The same function on tensors that have memory."""
    ema = EMA(0.9)
    return trace_step(
        real_model(), objective_of(), optimizer_of, ema.update, lambda: (ema.average or {}).values(), batch_of(SIZE)
    )  # fmt: skip


def tensors_in(x: Any) -> Iterator[torch.Tensor]:
    """Also those of dataclasses and of what they have computed so far."""
    if isinstance(x, torch.Tensor):
        yield x
    elif dataclasses.is_dataclass(x):
        yield from tensors_in(list(vars(x).values()))
    elif isinstance(x, list | tuple):
        for item in x:
            yield from tensors_in(item)


def saved_bytes(model: LanguageModel) -> int:
    """What autograd saves for backward, each storage once, without parameters, buffers and ids, by torch's own hooks.

    A layer that is computed again saves nothing by itself; its arguments are what is held for it.
    """
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    batch = batch_of(SIZE)
    own |= {x.untyped_storage().data_ptr() for x in (*model.buffers(), *tensors_in(batch))}
    seen: dict[int, int] = {}
    held = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
            held.append(x)  # its address is not used again
        return x

    def holding(method: Callable[..., Any], *arguments: Any) -> Any:
        out = method(*arguments)
        if torch.is_grad_enabled() and isinstance(method, partial):
            for x in tensors_in(arguments):
                pack(x)
        return out

    for layer in model.layers:
        for name in passes(layer):
            setattr(layer, name, partial(holding, getattr(layer, name)))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        objective_of()(model, batch, 0)
    return sum(seen.values())


def test_fake_tensors_are_counted_as_real_ones() -> None:
    fake, real = trace_of(SIZE), real_trace()
    assert fake.states == real.states and fake.parameters == real.parameters
    assert fake.forward_flops == real.forward_flops and fake.backward_flops == real.backward_flops
    assert fake.kept == pytest.approx(real.kept, rel=1e-3)
    assert fake.peak == pytest.approx(real.peak, rel=1e-3)
    assert fake.update_peak == pytest.approx(real.update_peak, rel=1e-3)


@pytest.mark.parametrize("again", [False, True])
def test_kept_is_what_autograd_saves(again: bool) -> None:
    kept, saved = trace_of(SIZE, again).kept, saved_bytes(real_model(again))
    assert kept == pytest.approx(saved, rel=1e-3)  # the loss's terms are kept, too, and some of what ids become is not


def test_recomputation_keeps_less_and_computes_more() -> None:
    plain, again = trace_of(SIZE), trace_of(SIZE, again=True)
    assert again.kept < plain.kept and again.peak < plain.peak
    assert again.forward_flops == plain.forward_flops and again.states == plain.states
    # backward does the layers' forward once more: that of both streams, and not what stands outside the layers
    assert plain.backward_flops < again.backward_flops < plain.backward_flops + plain.forward_flops


def test_mixed_precision_keeps_what_a_gpu_keeps_also_where_layers_are_computed_again() -> None:
    """torch compares the types of what is computed again with those of the first time."""
    plain, mixed = trace_of(SIZE), trace_of(SIZE, mixed=True)
    assert {one.half for one in mixed.forward if one.flops} == {False, True}  # the evidence stays in float32
    assert mixed.kept < plain.kept and mixed.states == plain.states
    assert trace_of(SIZE, again=True, mixed=True).kept < mixed.kept
    halves = trace_of(SIZE, mixed=True, gathered=torch.bfloat16)  # no second, 16-bit copy of the layers' weights
    assert halves.states == plain.states and halves.kept < mixed.kept
    assert (halves.forward_flops, halves.backward_flops) == (plain.forward_flops, plain.backward_flops)


def test_flops_are_torchs_where_nothing_is_causal() -> None:
    """torch counts every score of causal attention; here the ones above the diagonal are left out."""
    model, batch = real_model(), batch_of(SIZE)
    model.denoiser.attend = lambda q, k, v, visible: v[:, :, -q.shape[2] :]  # none at all
    with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as theirs, Ledger() as ours:
        objective_of()(model, batch, 0).loss.backward()
    assert sum(n * one.flops for one, n in ours.work.items()) == theirs.get_total_flops() > 0


@pytest.mark.parametrize("causal", [False, True])
def test_attention_counts_the_scores_it_computes(causal: bool) -> None:
    q = torch.randn(2, 3, 8, 4, requires_grad=True)
    with Ledger() as forward:
        out = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=causal)
    with Ledger() as backward:
        out.sum().backward()
    pairs = 8 * 9 // 2 if causal else 64
    products = 2 * 3 * pairs * 4 * 2  # one product over all pairs, two FLOPs each
    assert sum(n * one.flops for one, n in forward.work.items()) == 2 * products
    assert sum(n * one.flops for one, n in backward.work.items()) == 5 * products


def test_states_are_those_of_a_training_module_after_a_run(tmp_path) -> None:
    module = tiny_module(global_batch_size=2)
    fit(tmp_path, module, max_steps=1, global_batch_size=2)
    optimizer = module.optimizers(use_pl_optimizer=False)
    for p in module.model.parameters():  # Lightning has let them go
        p.grad = torch.zeros_like(p)
    found = count_states(module.model, module.model.layers, optimizer, module.ema.average.values())
    model = module.model
    matrices = {
        p for layer in model.layers for m in layer.modules() if isinstance(m, torch.nn.Linear) for p in [m.weight]
    }
    matrices |= {m.weight for m in model.trunk.modules() if isinstance(m, torch.nn.Linear)}
    numbers = sum(p.numel() for p in model.parameters())
    muon = sum(p.numel() for p in matrices)
    others = [p for p in model.parameters() if p not in matrices and p in optimizer.state]
    assert found.parameters == found.average == found.gradients == 4 * numbers
    # Muon keeps a momentum, AdamW two moments and a step of its own a tensor
    assert found.optimizer == 4 * muon + sum(8 * p.numel() + 4 for p in others)
    assert 0 < found.largest_layer < found.layers < found.parameters


def test_the_ledger_knows_what_is_alive() -> None:
    with Ledger() as ledger:
        a = torch.ones(1000)
        b = a + 1
        view = b[:10]
        assert ledger.live == ledger.peak == 8000
        del a
        assert (ledger.live, ledger.peak) == (4000, 8000)
        del b
        assert ledger.live == 4000  # the view holds it
        ledger.release(view)
        assert ledger.live == 0
    assert Work(0, 8000, False, True) in ledger.work  # reads a, writes b; a view moves nothing
