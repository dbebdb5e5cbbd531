"""−log p of a continuation given its context, against what is known exactly."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from celeris.baselines.llama import Llama, llama_nats
from celeris.baselines.masked import MaskedLM
from celeris.errors import CelerisError
from celeris.evaluation.bound import row_bounds
from celeris.evaluation.conditional import Pair, bound_nats, exact_nats
from celeris.evaluation.likelihood import context_denoiser
from celeris.model import DiffusionLM
from celeris.noise import LossCDFSchedule
from celeris.rounding import Denoised
from tests.core.small import small_model
from tests.oracles.chain import Chain

PAIRS = [Pair([3, 4, 5], [6, 7]), Pair([], [8, 9, 10, 3, 4, 5, 6, 7, 8, 9]), Pair([4] * 9, [5] * 8), Pair([2], [3])]


class ChainModel(DiffusionLM):
    """A model whose denoiser is the exact posterior of a Markov chain, given the last token before each block."""

    def __init__(self, chain: Chain, block_length: int) -> None:
        nn.Module.__init__(self)
        self.chain, self.block_length, self.stagger = chain, block_length, 0.0
        self.self_conditioning, self.max_length, self.pad_id = False, 64, len(chain.first)
        table = torch.cat([chain.table, torch.zeros(1, chain.table.shape[1])])  # PAD is no symbol of the chain
        self.embedding = type("Embedding", (nn.Module,), {})()
        self.embedding.table = table
        self.schedule = LossCDFSchedule(-9, 9)
        self.anchor = nn.Parameter(torch.zeros(1))

    def encode_context(self, ids: Any, lengths: Any = None, past: Any = None) -> Any:
        return ids

    def predict(self, z, gamma, context, start, self_cond=None, given=None, valid=None) -> Denoised:
        logits = torch.full((*z.shape[:-1], self.pad_id + 1), -1e9)
        first = self.chain.first
        for row, block in torch.cartesian_prod(torch.arange(z.shape[0]), torch.arange(z.shape[1])).tolist():
            length, before = int(valid[row, block].sum()), int(start[row, block])
            self.chain.first = first if before == 0 else self.chain.step[context[row, before - 1]]
            seen = self.chain.posterior(z[row, block, :length], gamma[row, block, :length])
            logits[row, block, :length, :-1] = seen.float()
        self.chain.first = first
        return Denoised(logits)


def test_under_the_exact_posterior_the_bound_is_the_conditional_likelihood() -> None:
    chain = Chain(sharpness=2.5)
    model = ChainModel(chain, block_length=3)
    rows = chain.sample(40, 7, seed=4)
    # Contexts of 0 to 2 tokens, continuations of 4 or 5: a whole block and the beginning of another.
    pairs = [Pair(row[1 : 1 + k % 3].tolist(), row[1 + k % 3 : 6].tolist()) for k, row in enumerate(rows)]
    exact = torch.tensor([
        float(chain.nats(torch.tensor([*pair.context, *pair.continuation])))
        - (float(chain.nats(torch.tensor(pair.context))) if pair.context else 0.0)
        for pair in pairs
    ])  # fmt: skip
    excess = torch.stack([bound_nats(model, pairs, 24, seed, 64) for seed in range(2)]).mean(0) - exact
    error = float(excess.std()) / math.sqrt(len(pairs))
    assert error < 0.05 * float(exact.mean())
    # Not below it, and no further above it than the estimate is noisy.
    assert -3 * error < float(excess.mean()) < 3 * error + 0.01
    other = exact.roll(1)  # the test would see a bound of other continuations
    assert abs(float((excess + exact - other).std())) > 3 * float(excess.std()) / 2


def test_whole_rows_from_nothing_have_the_bound_of_the_likelihood_metric() -> None:
    model = small_model(stagger=2.0)
    rows = torch.randint(3, 13, (3, 16), generator=torch.Generator().manual_seed(0))
    pairs = [Pair([], row.tolist()) for row in rows]
    ids, index = rows.unflatten(1, (2, 8)), torch.tensor([pair.key for pair in pairs])
    with torch.no_grad():
        expected = row_bounds(
            context_denoiser(model, ids), model.embedding.table, model.schedule, ids, index,
            stagger=2.0, samples=4, seed=5, pad_id=0,
        ).sum(1)  # fmt: skip
    assert torch.allclose(bound_nats(model, pairs, 4, 5, 8), expected, rtol=1e-5)


def llama(tokenizer: Any = None) -> Llama:
    torch.manual_seed(0)
    model = Llama(13, 64, width=16, depth=1, heads=2, mlp_width=24, unk_id=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def masked() -> MaskedLM:
    torch.manual_seed(0)
    model = MaskedLM(13, 64, width=32, depth=1, heads=2, unk_id=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def test_the_likelihood_of_the_autoregressive_baseline_is_its_teacher_forced_sum() -> None:
    model = llama()
    nats, greedy = exact_nats(model, PAIRS)
    for pair, value in zip(PAIRS, nats.tolist(), strict=True):
        both = llama_nats(model, torch.tensor([[*pair.context, *pair.continuation]]))
        before = llama_nats(model, torch.tensor([pair.context])) if pair.context else torch.zeros(1)
        assert value == pytest.approx(float(both - before), rel=1e-5)
    likeliest: list[int] = []
    for _ in range(3):
        ids = torch.tensor([[3, 4, *likeliest, 0]])
        likeliest.append(int(model.logits(ids)[0, -1].argmax()))
    pairs = [Pair([3, 4], likeliest), Pair([3, 4], [*likeliest[:2], (likeliest[2] + 1) % 10 + 3])]
    assert exact_nats(model, pairs)[1] == [True, likeliest[2] == pairs[1].continuation[2]]


@pytest.mark.parametrize("head", [llama, small_model], ids=["llama", "next-token head"])
def test_exact_likelihoods_of_all_continuations_sum_to_one(head) -> None:
    model = head()
    pairs = [Pair(context, [token]) for context in ([], [4, 5]) for token in range(13)]
    nats, _ = exact_nats(model, pairs)
    assert (-nats).exp().view(2, 13).sum(1).tolist() == pytest.approx([1, 1], rel=1e-5)


def test_the_bound_of_a_masked_model_is_exact_for_one_token_and_an_average_for_two() -> None:
    model = masked()

    @torch.no_grad()
    def log_p(ids: list[int], place: int) -> float:
        tokens = torch.tensor([ids])
        return float(model.logits(tokens)[0, place].log_softmax(-1)[token])

    context, token = [4, 5], 7
    one = bound_nats(model, [Pair(context, [token])], 3, 0, 8)
    assert float(one) == pytest.approx(-log_p([4, 5, 13], 2), rel=1e-5)
    # Two tokens: half of the time one of them is masked and counts twice, half of the time both are.
    first, second, token = 7, 9, 7
    both_first, alone_first = log_p([4, 5, 13, 13], 2), log_p([4, 5, 13, 9], 2)
    token = 9
    both_second, alone_second = log_p([4, 5, 13, 13], 3), log_p([4, 5, 7, 13], 3)
    expected = -0.5 * (both_first + both_second) - 0.5 * (alone_first + alone_second)
    found = bound_nats(model, [Pair(context, [first, second])], 300, 0, 8)
    assert float(found) == pytest.approx(expected, rel=0.05)
    # and that is above −log p of the two in either order
    assert expected > -max(both_first + alone_second, both_second + alone_first)


@pytest.mark.parametrize("make", [small_model, masked])
def test_a_bound_depends_on_no_other_request(make) -> None:
    model = make()
    together = bound_nats(model, PAIRS, 3, 1, 4)
    assert torch.isfinite(together).all()
    for number, pair in enumerate(PAIRS):
        assert float(bound_nats(model, [pair], 3, 1, 1)) == pytest.approx(float(together[number]), rel=1e-4)
    assert torch.allclose(bound_nats(model, PAIRS[::-1], 3, 1, 2), together.flip(0), rtol=1e-4)


def test_what_cannot_be_scored_is_refused() -> None:
    model = small_model()
    with pytest.raises(CelerisError, match="no tokens"):
        bound_nats(model, [Pair([3], [])], 1, 0, 1)
    with pytest.raises(CelerisError, match="window 64"):
        bound_nats(model, [Pair([3] * 60, [4] * 5)], 1, 0, 1)
    with pytest.raises(CelerisError, match="exact likelihood"):
        exact_nats(masked(), [Pair([3], [4])])
    with pytest.raises(CelerisError, match="No bound"):
        bound_nats(llama(), [Pair([3], [4])], 1, 0, 1)
