"""What is learned from a step does not depend on the micro-batches and ranks it came in."""

from collections.abc import Callable

import pytest
import torch

from celeris.noise import EntropyRateSchedule, LossCDFSchedule
from celeris.noise.online import OnlineFit
from celeris.noise.schedule import Observed
from celeris.noise.times import LossAware


def levels(fit: OnlineFit, part: slice) -> None:
    """Show `fit` some of 64 observations."""
    draw = torch.Generator().manual_seed(3)
    place, loss = torch.rand(64, generator=draw)[part], torch.rand(64, generator=draw)[part]
    counted = (torch.arange(64) % 5 != 0)[part]
    if isinstance(fit, LossAware):
        fit.fit(place, loss, counted)
    else:
        fit.fit(Observed(10 * place - 4, loss, counted, lambda: loss))


MAKE = [lambda: LossCDFSchedule(-4, 6, 8), lambda: EntropyRateSchedule(-4, 6, bins=8), lambda: LossAware(8, warm_up=1)]


@pytest.mark.parametrize("make", MAKE)
def test_a_step_is_one_observation_however_it_is_cut(make: Callable[[], OnlineFit]) -> None:
    whole, micro, ranks = make(), make(), [make(), make()]
    for _ in range(3):
        levels(whole, slice(0, 64))
        micro.hold()
        for start in (0, 10, 11):
            levels(micro, slice(start, {0: 10, 10: 11, 11: 64}[start]))
        micro.settle(lambda sums: sums)
        for rank, part in zip(ranks, (slice(0, 40), slice(40, 64)), strict=True):
            rank.hold()
            levels(rank, part)
        together = sum(rank._held for rank in ranks)
        for rank in ranks:
            rank.settle(lambda sums, together=together: together)
    for other in (micro, *ranks):
        for name, value in whole.state_dict().items():
            torch.testing.assert_close(other.state_dict()[name], value, atol=1e-6, rtol=1e-6, msg=name)


@pytest.mark.parametrize("make", MAKE)
def test_a_step_that_is_not_finished_leaves_nothing(make: Callable[[], OnlineFit]) -> None:
    one, two = make(), make()
    two.hold()
    levels(two, slice(0, 9))
    assert all(torch.equal(value, one.state_dict()[name]) for name, value in two.state_dict().items())
    for fit in (one, two):
        fit.hold()
        levels(fit, slice(9, 64))
        fit.settle(lambda sums: sums)
    assert all(torch.equal(value, one.state_dict()[name]) for name, value in two.state_dict().items())


@pytest.mark.parametrize("make", MAKE)
def test_a_step_in_which_nothing_counted_teaches_nothing(make: Callable[[], OnlineFit]) -> None:
    fit = make()
    levels(fit, slice(0, 64))
    before = {name: value.clone() for name, value in fit.state_dict().items()}
    fit.hold()
    fit.settle(lambda sums: sums)
    assert all(torch.equal(value, before[name]) for name, value in fit.state_dict().items())
