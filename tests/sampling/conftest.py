import pytest
import torch

from celeris.model import DiffusionLM
from tests.core.conftest import exported  # noqa: F401


@pytest.fixture(autouse=True)
def seeded() -> None:
    """A new model is drawn from torch's own generator: the same one for every test."""
    torch.manual_seed(0)


@pytest.fixture
def model(exported) -> DiffusionLM:  # noqa: F811
    """Random weights that do have opinions, and no EOS."""
    model = DiffusionLM.from_pretrained(exported)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng))
        model.rounding.prior[model.eos_id] = -1e9
    return model
