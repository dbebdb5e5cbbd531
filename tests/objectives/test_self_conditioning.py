"""What a self-conditioned training pass is shown is the model's own estimate from the same noise, never the answer."""

import pytest
import torch

from celeris.noise.levels import LevelMixture, Together
from celeris.objectives import CrossEntropy
from tests.core.small import small_model
from tests.objectives.parts import block_batch, text


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_estimate_of_a_first_pass_on_the_same_noise_is_fed_back(monkeypatch, share):
    model = small_model()
    predict, calls = model.predict, []

    def watched(z, gamma, context, start, self_cond=None, *rest):
        out = predict(z, gamma, context, start, self_cond, *rest)
        calls.append((z, gamma, self_cond, out))
        return out

    monkeypatch.setattr(model, "predict", watched)
    CrossEntropy(LevelMixture([Together()], [1.0]), self_conditioning=share)(model, block_batch(text(3)), seed=1)
    if share == 0:
        assert [call[2] for call in calls] == [None]
        return
    first, second = calls
    assert first[2] is None and not first[3].logits.requires_grad
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert torch.equal(second[2], model.x0_hat(first[3]))
