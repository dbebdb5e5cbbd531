"""The masked-diffusion baseline: its bound against exact values, its samples against an exact joint."""

import math
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from celeris.baselines import MaskedDiffusion, MaskedLM, generate_masked, masked_bound
from celeris.data.layouts import AllBlocks
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.training.optim.groups import parameter_roles
from tests.baselines.small import small_masked, tokenizer

PROMPTS = ["abc", "", "hgfedcba", "a"]


@pytest.fixture(scope="module")
def model() -> MaskedLM:
    return small_masked()


class Source(MaskedLM):
    """Predicts by a rule: (B, L) with MASKs → (B, L, V) log-probabilities."""

    def __init__(self, rule) -> None:
        super().__init__(11, 32, 4, 1, 1, unk_id=2)
        self.rule, self.tokenizer = rule, tokenizer()

    def hidden(self, ids: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.rule(ids)

    def read(self, hidden: Tensor) -> Tensor:
        return hidden


def independent(p: list[float]) -> Source:
    """Letters 3, 4, … with probabilities p wherever a token is masked."""
    log_p = torch.full((11,), -1e9)
    log_p[3 : 3 + len(p)] = torch.tensor(p).log()
    return Source(lambda ids: log_p.expand(*ids.shape, -1))


def rows_of(letters: list[int], count: int) -> Tensor:
    """Rows with exactly these letters, each in an order of its own."""
    rng = torch.Generator().manual_seed(0)
    return torch.stack([torch.tensor(letters)[torch.randperm(len(letters), generator=rng)] for _ in range(count)])


def loss_of(model: MaskedLM, rows: Tensor, seed: int, first: int = 0) -> float:
    batch = AllBlocks(rows.shape[1])(rows, torch.arange(first, first + len(rows)), seed=0, pad_id=0)
    return float(MaskedDiffusion()(model, batch, seed).loss.detach())


LETTERS = [3, 3, 3, 3, 4, 4, 5, 6]  # exactly as often as P says
P, Q = [0.5, 0.25, 0.125, 0.125], [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize("q", [P, Q])
def test_the_bound_of_independent_tokens_is_their_entropy_or_cross_entropy(q: list[float]) -> None:
    exact = -sum(p * math.log(other) for p, other in zip(P, q, strict=True))
    rows, source = rows_of(LETTERS, 512), independent(q)
    nats = masked_bound(source, rows, samples=16, seed=1)
    assert float(nats.mean()) / 8 == pytest.approx(exact, abs=4 * float(nats.std()) / 8 / math.sqrt(512))
    assert 4 * float(nats.std()) / 8 / math.sqrt(512) < 0.03 * exact
    assert loss_of(source, rows, seed=1) == pytest.approx(exact, rel=0.1)


def test_the_bound_of_equally_likely_tokens_is_exact_in_every_draw() -> None:
    nats = masked_bound(independent([0.25] * 4), rows_of(LETTERS, 3), samples=1, seed=2)
    torch.testing.assert_close(nats, torch.full((3,), 8 * math.log(4), dtype=torch.float64), rtol=1e-6, atol=0)


def test_both_forms_are_the_sum_over_all_subsets(model: MaskedLM) -> None:
    """Every subset of five positions once, against the sampled sizes and the sampled times."""
    row = torch.tensor([3, 7, 5, 1, 9])
    exact = 0.0
    for n in range(1, 6):
        costs = []
        for subset in combinations(range(5), n):
            place = list(subset)
            seen = row.clone()
            seen[place] = model.mask_id
            with torch.no_grad():
                log_p = model.logits(seen[None])[0].double().log_softmax(-1)
            costs.append(-float(log_p[place, row[place]].sum()) / n)
        exact += sum(costs) / len(costs)
    rows = row.expand(4000, -1)
    nats = masked_bound(model, rows, samples=2, seed=3, batch_size=500)
    assert float(nats.mean()) == pytest.approx(exact, abs=4 * float(nats.std()) / math.sqrt(4000))
    times = torch.tensor([5 * loss_of(model, rows[:500], seed=3, first=500 * k) for k in range(12)])
    assert float(times.mean()) == pytest.approx(exact, abs=4 * float(times.std()) / math.sqrt(12))
    assert 4 * float(times.std()) / math.sqrt(12) < 0.05 * exact


def test_rows_padding_and_batches_change_nothing(model: MaskedLM) -> None:
    rows = torch.randint(3, 11, (5, 16), generator=torch.Generator().manual_seed(0))
    rows[1:, 9:] = model.pad_id
    nats = masked_bound(model, rows, samples=3, seed=4)
    torch.testing.assert_close(masked_bound(model, rows, samples=3, seed=4, batch_size=2), nats)
    assert not torch.equal(masked_bound(model, rows, samples=3, seed=5), nats)
    with torch.no_grad():
        padded, bare = model.logits(rows, rows != 0)[1:, :9], model.logits(rows[1:, :9])
    torch.testing.assert_close(padded, bare, rtol=1e-4, atol=1e-4)
    whole = AllBlocks(16)(rows, torch.arange(5), seed=0, pad_id=0)
    objective, parts = MaskedDiffusion(), [0.0, 0.0]
    for row in range(5):
        part = whole.rows(torch.tensor([row]))
        count = int((part.canvas != 0).sum())
        parts = [parts[0] + count * float(objective(model, part, 6).loss.detach()), parts[1] + count]
    assert float(objective(model, whole, 6).loss.detach()) == pytest.approx(parts[0] / parts[1], rel=1e-5)
    with pytest.raises(CelerisError, match="block_length to length"):
        objective(model, AllBlocks(8)(rows, torch.arange(5), seed=0, pad_id=0), 6)


def test_given_positions_are_read_and_not_asked() -> None:
    seen: list[Tensor] = []
    log_p = torch.zeros(11)

    def rule(ids: Tensor) -> Tensor:
        seen.append(ids)
        return log_p.expand(*ids.shape, -1)

    rows = rows_of(LETTERS, 64)
    batch = AllBlocks(8)(rows, torch.arange(64), seed=0, pad_id=0)
    batch.given[:, :, :4] = True
    loss = MaskedDiffusion()(Source(rule), batch, 7).loss
    assert torch.equal(seen[0][:, :4], rows[:, :4]) and (seen[0][:, 4:] == 11).any()
    assert float(loss) == pytest.approx(math.log(11), rel=0.2)  # per token that is asked for


def test_what_is_not_masked_is_carried_over_and_no_special_token_is_predicted(model: MaskedLM) -> None:
    ids = torch.tensor([[3, 11, 5, 11], [11, 11, 1, 9]])
    with torch.no_grad():
        p = model.log_probabilities(ids).exp()
    torch.testing.assert_close(p.sum(-1), torch.ones(2, 4))
    known = ids != model.mask_id
    assert torch.equal(p[known].argmax(-1), ids[known]) and bool((p[known].max(-1).values == 1).all())
    assert p.shape[-1] == model.vocab_size and float(p[~known][:, [model.pad_id, 2]].abs().max()) == 0.0
    out = generate_masked(model, [""], num_samples=32, max_new_tokens=24, temperature=3.0)
    assert {token for row in out.sequences for token in row} == set(range(3, 11))


@pytest.mark.parametrize("steps", [1, 4, None])
def test_a_row_alone_is_the_row_in_a_batch(model: MaskedLM, steps: int | None) -> None:
    batch = generate_masked(model, PROMPTS, max_new_tokens=20, num_inference_steps=steps, seed=5)
    for row, prompt in enumerate(PROMPTS):
        alone = generate_masked(model, [prompt], max_new_tokens=20, num_inference_steps=steps, seed=5 + row)
        assert alone.sequences[0] == batch.sequences[row] and alone.nfe[0] == batch.nfe[row]
    assert all(1 <= calls <= (steps or 20) for calls in batch.nfe) and batch.context_passes == [0] * 4
    assert (steps is None) == (min(batch.nfe) > 4)  # some of twenty steps decide nothing, and are not taken
    assert max(batch.nfe) < 20


def test_prompts_stay_and_calls_are_counted(model: MaskedLM) -> None:
    calls: list[Tensor] = []

    class Watched(Source):
        def hidden(self, ids: Tensor, valid: Tensor | None = None) -> Tensor:
            calls.append(ids)
            return super().hidden(ids, valid)

    log_p = torch.full((11,), -1e9)
    log_p[[1, 3]] = math.log(0.5)
    out = generate_masked(
        Watched(lambda ids: log_p.expand(*ids.shape, -1)), ["abcd"], max_new_tokens=16, num_inference_steps=6
    )
    assert len(calls) == out.nfe[0] <= 6
    assert all(ids[0, :4].tolist() == tokenizer().encode("abcd") for ids in calls)
    assert out.finish_reasons == ["stop"] and set(out.sequences[0]) <= {3}
    for text, settings in (("steps", {"num_inference_steps": 0}), ("temperature", {"temperature": -1.0})):
        with pytest.raises(CelerisError, match=text):
            generate_masked(model, [""], **settings)


def test_temperature_zero_is_deterministic_given_the_order(model: MaskedLM) -> None:
    one, two = (generate_masked(model, ["ab"], max_new_tokens=8, temperature=0.0, seed=9) for _ in range(2))
    assert one.sequences == two.sequences
    first, second = (
        generate_masked(model, ["ab"], max_new_tokens=8, temperature=0.0, num_inference_steps=1, seed=seed)
        for seed in (1, 2)
    )
    assert first.sequences == second.sequences  # one call decides everything: no order, no chance


def test_many_steps_give_the_joint_and_one_step_its_margins() -> None:
    """Two positions that depend on each other, read by their exact conditionals."""
    joint = torch.tensor([[0.40, 0.02, 0.08], [0.03, 0.30, 0.01], [0.02, 0.04, 0.10]], dtype=torch.float64)

    def rule(ids: Tensor) -> Tensor:
        out = torch.full((*ids.shape, 11), -1e9)
        for row, (a, b) in enumerate(ids.tolist()):
            first = joint.sum(1) if b == 11 else joint[:, b - 3] / joint[:, b - 3].sum()
            second = joint.sum(0) if a == 11 else joint[a - 3] / joint[a - 3].sum()
            out[row, 0, 3:6], out[row, 1, 3:6] = first.log(), second.log()
        return out

    def frequencies(steps: int) -> Tensor:
        out = generate_masked(
            Source(rule), [""], num_samples=4000, max_new_tokens=2, num_inference_steps=steps, seed=11
        )
        seen = torch.zeros(3, 3, dtype=torch.float64)
        for a, b in out.sequences:
            seen[a - 3, b - 3] += 1
        return seen / 4000

    def worst(found: Tensor, p: Tensor) -> float:
        return float(((found - p).abs() / (p * (1 - p) / 4000).sqrt()).max())

    margins = joint.sum(1, keepdim=True) * joint.sum(0)
    many, one = frequencies(1000), frequencies(1)
    assert worst(many, joint) < 4.5 and worst(one, margins) < 4.5
    assert worst(one, joint) > 20


@pytest.mark.parametrize("embedding_dim", [None, 8])
def test_files_hold_the_model(embedding_dim: int | None, tmp_path: Path) -> None:
    spec = {
        "_target_": "celeris.baselines.MaskedLM", "vocab_size": 11, "max_length": 32, "width": 32, "depth": 2,
        "heads": 2, "mixing": [2, 2], "embedding_dim": embedding_dim, "unk_id": 2,
    }  # fmt: skip
    model = LanguageModel.from_spec(spec)
    model.load_state_dict(small_masked(embedding_dim).state_dict())
    model.tokenizer = tokenizer()
    model.set_unigram(torch.arange(11))
    loaded = LanguageModel.from_pretrained(model.save_pretrained(tmp_path))
    assert isinstance(loaded, MaskedLM) and loaded.weight_hash == model.weight_hash
    rows = torch.randint(3, 12, (2, 10))
    assert torch.equal(loaded.logits(rows), model.eval().logits(rows))
    roles = parameter_roles(model)
    every = [parameter for role in roles for parameter in role]
    assert len({id(p) for p in every}) == len(every) == sum(p.requires_grad for p in model.parameters())
    assert [p.shape[0] for p in roles.embedding] == [12]


@pytest.mark.parametrize("left_neighbour", [False, True])
def test_every_parameter_is_trained(left_neighbour: bool) -> None:
    model = small_masked(left_neighbour=left_neighbour).train()
    rows = torch.randint(3, 11, (4, 16), generator=torch.Generator().manual_seed(0))
    MaskedDiffusion()(model, AllBlocks(16)(rows, torch.arange(4), seed=0, pad_id=0), 0).loss.backward()
    idle = [name for name, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert idle == []
