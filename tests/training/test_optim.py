import copy

import pytest
import torch
from torch import nn

from celeris.errors import CelerisError
from celeris.noise import GumbelSchedule
from celeris.training.optim import Muon, MuonAdamW, WarmupStableDecay, adamw, muon, muon_adamw
from celeris.training.optim.groups import parameter_roles

from .tiny import tiny_model


def matrices(*shapes: tuple[int, int]) -> list[nn.Parameter]:
    g = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=g)) for shape in shapes]


def set_gradients(*copies: list[nn.Parameter], seed: int) -> None:
    for params in copies:
        g = torch.Generator().manual_seed(seed)
        for p in params:
            p.grad = torch.randn(p.shape, generator=g)


def test_muon_is_torchs_muon(monkeypatch):
    monkeypatch.setattr(muon, "product_dtype", lambda device: torch.bfloat16)
    ours = matrices((8, 24), (24, 8), (16, 16), (8, 24), (24, 8))
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    a = Muon(ours, lr=0.02, momentum=0.95, weight_decay=0.1)
    b = torch.optim.Muon(theirs, lr=0.02, momentum=0.95, weight_decay=0.1)
    for step in range(5):
        set_gradients(ours, theirs, seed=step)
        a.step()
        b.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, atol=2e-3, rtol=0)  # bf16 products, summed in another order
        assert not torch.equal(p, matrices(p.shape)[0])


@pytest.mark.parametrize("shape", [(3, 12, 40), (3, 40, 12), (1, 16, 16)])
def test_newton_schulz_gives_singular_values_near_one_in_the_same_frame(shape):
    given = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    made = muon.orthogonalize(given, steps=5, dtype=torch.float64)
    values = torch.linalg.svdvals(made)
    assert values.min() > 0.3 and values.max() < 1.3
    u, _, vt = torch.linalg.svd(given, full_matrices=False)
    inner = u.mT @ made @ vt.mT
    torch.testing.assert_close(inner, torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1)), atol=1e-9, rtol=0)


def test_muon_refuses_vectors():
    with pytest.raises(ValueError, match="matrices"):
        Muon([nn.Parameter(torch.zeros(3))])


def test_roles_partition_the_trainable_parameters():
    model = tiny_model(GumbelSchedule(1.0))
    roles = parameter_roles(model)
    found = [p for group in roles for p in group]
    assert {id(p) for p in found} == {id(p) for p in model.parameters()} and len(found) == len({id(p) for p in found})
    assert all(p.ndim == 2 for p in roles.matrices) and all(p.ndim < 2 for p in roles.no_decay)
    assert roles.embedding == [model.embedding.weight] and len(roles.schedule) == 3
    trunk = {id(p) for p in model.denoiser.parameters()}
    assert all(id(p) in trunk for p in roles.matrices)
    assert not any(id(model.rounding.project.weight) == id(p) for p in roles.matrices)


def test_groups_have_their_own_rates_and_no_decay_on_vectors_embedding_and_schedule():
    for optimizer in (
        adamw(tiny_model(GumbelSchedule(1.0)), lr=1e-3, embedding_lr=5e-3, weight_decay=0.1),
        muon_adamw(tiny_model(GumbelSchedule(1.0)), lr=1e-3, embedding_lr=5e-3, weight_decay=0.1),
    ):
        groups = {group["role"]: group for group in optimizer.param_groups}
        assert groups["schedule"]["base_lr"] == 1e-2 and groups["embedding"]["base_lr"] == 5e-3
        assert {role for role, group in groups.items() if group["weight_decay"] > 0} <= {"matrices", "decay"}


def pair() -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    return matrices((8, 16), (16, 8)), matrices((4, 6), (1, 5))


def test_muon_adamw_is_the_two_side_by_side_and_survives_a_state_round_trip():
    def build(hidden, rest):
        return MuonAdamW([{"params": hidden, "lr": 0.02}], [{"params": rest, "lr": 1e-2, "weight_decay": 0.1}])

    (h1, r1), (h2, r2) = pair(), pair()
    both = build(h1, r1)
    apart = Muon(h2, lr=0.02), torch.optim.AdamW(r2, lr=1e-2, weight_decay=0.1)
    for step in range(6):
        if step == 3:  # through a file, into fresh objects
            saved = copy.deepcopy(both.state_dict())
            h1, r1 = ([nn.Parameter(p.detach().clone()) for p in params] for params in (h1, r1))
            both = build(h1, r1)
            both.load_state_dict(saved)
        set_gradients(h1, h2, seed=step)
        set_gradients(r1, r2, seed=step + 100)
        rate = 0.5 if step > 3 else 1.0  # edits of the shared groups must reach both parts
        for group, base in zip(both.param_groups, (0.02, 1e-2), strict=True):
            group["lr"] = base * rate
        apart[0].param_groups[0]["lr"], apart[1].param_groups[0]["lr"] = 0.02 * rate, 1e-2 * rate
        both.step()
        for optimizer in apart:
            optimizer.step()
        assert all(torch.equal(p, q) for p, q in zip(h1, h2, strict=True))
        for p, q in zip(r1, r2, strict=True):
            torch.testing.assert_close(p, q)  # fused and plain AdamW


def test_closure_runs_once_with_gradients_enabled():
    hidden, rest = pair()
    optimizer = MuonAdamW([{"params": hidden}], [{"params": rest}])
    calls = []

    def closure():
        calls.append(torch.is_grad_enabled())
        loss = sum(p.square().sum() for p in (*hidden, *rest))
        loss.backward()
        return loss

    before = hidden[0].detach().clone()
    assert optimizer.step(closure) is not None
    assert calls == [True] and not torch.equal(before, hidden[0])


def test_learning_rate_rises_holds_and_falls():
    schedule = WarmupStableDecay(warmup_steps=10, decay_fraction=0.25, final=0.1)
    rates = [schedule(step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 11) and rates[10] == 1.0 and rates[74] == 1.0
    assert all(a > b for a, b in zip(rates[75:], rates[76:], strict=False))
    assert rates[-1] == pytest.approx(0.1 + 0.9 / 25)
    assert WarmupStableDecay(0, 0.0)(99, 100) == 1.0
    with pytest.raises(CelerisError, match="decay_fraction"):
        WarmupStableDecay(decay_fraction=2.0)
