import io

import pytest
import torch
from torch import nn

from celeris.errors import CelerisError
from celeris.training.ema import EMA


def one_weight(value: float, dtype: torch.dtype = torch.float32) -> nn.Module:
    module = nn.Module()
    module.weight = nn.Parameter(torch.tensor([value], dtype=dtype))
    module.register_buffer("seen", torch.tensor(0))
    module.register_buffer("fit", torch.tensor([0.0]))
    return module


def settled(decay: float, value: float) -> EMA:
    """Long past its warm-up."""
    ema = EMA(decay)
    ema.load_state_dict({"num_updates": 10**8, "average": {"weight": torch.tensor([value])}})
    return ema


def test_average_of_bf16_weights_moves():
    model, ema = one_weight(1.5, torch.bfloat16), settled(0.9999, 1.0)
    for step in range(1000):
        ema.update(model, step)
    assert ema.average["weight"].item() == pytest.approx(1.5 - 0.5 * 0.9999**1000, abs=1e-4)  # 1.0476
    assert ema.average["weight"].dtype == torch.float32


def test_warm_up_follows_its_formula():
    model, ema, expected = one_weight(0.0), EMA(0.5), 0.0
    for n in range(20):
        with torch.no_grad():
            model.weight.fill_(float(n))
        ema.update(model, n)
        decay = min(0.5, (1 + n) / (10 + n)) if n else 0.0
        expected = decay * expected + (1 - decay) * n
    assert ema.average["weight"].item() == pytest.approx(expected, rel=1e-5) and ema.num_updates == 20


def test_before_its_start_the_average_is_the_model_itself():
    model, ema = one_weight(3.0), EMA(0.99, start_step=50)
    for step in range(10):
        ema.update(model, step)
    assert ema.average is None and ema.num_updates == 0
    with ema.swapped(model):
        assert model.weight.item() == 3.0
    ema.update(model, 50)
    assert ema.num_updates == 1


def test_swap_is_in_place_and_undone_after_an_error():
    model, ema = one_weight(3.0), settled(0.99, 1.0)
    place = model.weight.data_ptr()
    with torch.no_grad():
        model.seen += 16
    with pytest.raises(RuntimeError, match="inside"), ema.swapped(model):
        assert model.weight.item() == 1.0 and model.weight.data_ptr() == place
        assert model.seen.item() == 16  # buffers are the model's own, never averaged
        raise RuntimeError("inside")
    assert model.weight.item() == 3.0 and model.weight.data_ptr() == place


@pytest.mark.parametrize("start_step", [0, 5, 100])
def test_state_survives_a_file(start_step):
    model, ema = one_weight(2.0), EMA(0.9, start_step)
    for step in range(12):
        with torch.no_grad():
            model.weight.add_(0.1)
        ema.update(model, step)
    file = io.BytesIO()
    torch.save(ema.state_dict(), file)
    file.seek(0)
    again = EMA(0.9, start_step)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert again.num_updates == ema.num_updates == max(0, 12 - start_step)
    for step in (12, 120):
        ema.update(model, step)
        again.update(model, step)
    assert torch.equal(again.average["weight"], ema.average["weight"])


def test_other_parameters_than_the_averages_are_refused():
    ema = settled(0.9, 1.0)
    with pytest.raises(CelerisError, match="same parameters"):
        ema.update(nn.Linear(2, 2), 0)
    with pytest.raises(CelerisError, match="decay"):
        EMA(1.0)
