"""The autoregressive baseline: one probability whichever way it is asked, exact samples, files."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from celeris.baselines import Llama, LlamaNextToken, generate_llama, llama_nats
from celeris.baselines.llama_sampling import Sampler, left_padded, write
from celeris.data.layouts import AllBlocks, Split
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.sampling.request import prepare
from celeris.training.optim.groups import parameter_roles
from tests.baselines.small import small_llama

PROMPTS = ["abc", "", "hgfedcba", "a"]


@pytest.fixture(scope="module")
def model() -> Llama:
    return small_llama()


@torch.no_grad()
def test_the_likelihood_while_writing_is_that_of_reading(model: Llama) -> None:
    """−log p of sampled tokens from the logits of `generate` (cache, left padding) = teacher forcing on the text."""
    request = prepare(model, PROMPTS, 2, 12, 3)
    ids, mask = left_padded(model, request)
    out = write(
        model, ids, mask, Sampler(model, 1.0, request.generators), 12, output_logits=True, return_dict_in_generate=True
    )
    written = out.sequences[:, ids.shape[1] :]
    assert written.shape[1] == 12
    stepwise = model.allowed(torch.stack(out.logits, 1)).log_softmax(-1)
    compared = 0
    for row, length in enumerate(request.lengths.tolist()):
        tokens = written[row].tolist()
        kept = tokens[: tokens.index(model.eos_id) + 1] if model.eos_id in tokens else tokens
        text = torch.tensor([*request.ids[row, :length].tolist(), *kept])[None]
        whole = model.logits(text).log_softmax(-1)[0, length:]
        own = stepwise[row, : len(kept)]
        torch.testing.assert_close(own, whole, atol=1e-4, rtol=0)
        target = torch.tensor(kept)[:, None]
        assert float(own.gather(1, target).sum()) == pytest.approx(float(whole.gather(1, target).sum()), abs=1e-4)
        compared += len(kept)
    assert compared > 40


def test_the_likelihood_of_rows_is_the_sum_over_their_tokens(model: Llama) -> None:
    rows = torch.randint(3, 11, (5, 16), generator=torch.Generator().manual_seed(0))
    rows[1, 9:] = model.pad_id
    nats = llama_nats(model, rows)
    torch.testing.assert_close(llama_nats(model, rows, batch_size=2), nats)
    torch.testing.assert_close(llama_nats(model, rows[1:2, :9]), nats[1:2], rtol=1e-5, atol=1e-5)
    batch = AllBlocks(16)(rows, torch.arange(5), seed=0, pad_id=0)
    loss = LlamaNextToken()(model, batch, 0)
    assert float(loss.loss.detach()) == pytest.approx(float(nats.sum()) / int((rows != 0).sum()), rel=1e-5)
    assert loss.terms.keys() == {"loss", "loss_next_token"}
    with pytest.raises(CelerisError, match="layout=all_blocks"):
        LlamaNextToken()(model, Split(0.0)(rows, torch.arange(5), seed=0, pad_id=0), 0)


@torch.no_grad()
def test_probabilities_of_all_short_texts_sum_to_one(model: Llama) -> None:
    """Over every pair of tokens, PAD and UNK among them: the first token is scored, and nothing is lost."""
    tokens = torch.arange(model.vocab_size)
    pairs = torch.cartesian_prod(tokens, tokens)
    log_p = model.logits(pairs).double().log_softmax(-1).gather(2, pairs[..., None]).sum((1, 2))
    assert float(log_p.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    forbidden = ((pairs == model.pad_id) | (pairs == model.unk_id)).any(1)
    assert float(log_p[forbidden].exp().sum()) == 0.0


def test_no_token_looks_ahead_and_the_start_token_is_trained(model: Llama) -> None:
    rows = torch.randint(3, 11, (2, 10), generator=torch.Generator().manual_seed(1))
    changed = rows.clone()
    changed[:, 6:] = 3
    torch.testing.assert_close(model.logits(rows)[:, :7], model.logits(changed)[:, :7])
    assert not torch.allclose(model.logits(rows)[:, 8], model.logits(changed)[:, 8])
    F.cross_entropy(model.logits(rows)[:, 0], rows[:, 0]).backward()
    gradient = model.network.model.embed_tokens.weight.grad
    model.zero_grad()
    assert float(gradient[model.pad_id].abs().sum()) > 0


def test_a_row_alone_is_the_row_in_a_batch(model: Llama) -> None:
    batch = generate_llama(model, PROMPTS, max_new_tokens=20, seed=5)
    for row, prompt in enumerate(PROMPTS):
        alone = generate_llama(model, [prompt], max_new_tokens=20, seed=5 + row)
        assert alone.sequences[0] == batch.sequences[row]
        assert alone.context_passes[0] == batch.context_passes[row]
        stopped = batch.finish_reasons[row] == "stop"
        assert batch.context_passes[row] == len(batch.sequences[row]) + stopped
    assert batch.nfe == [0] * 4 and batch.texts[2].isalpha()
    assert {"stop", "length"} == set(generate_llama(model, [""], num_samples=16, max_new_tokens=9).finish_reasons)
    assert not {0, 1, 2} & {token for row in batch.sequences for token in row}
    assert 0 < batch.prefill_seconds < batch.seconds


@torch.no_grad()
def test_samples_have_the_models_probabilities(model: Llama) -> None:
    count, temperature = 3000, 1.5
    out = generate_llama(model, ["ab"], num_samples=count, max_new_tokens=1, temperature=temperature, seed=1)
    seen = torch.zeros(model.vocab_size, dtype=torch.float64)
    for tokens in out.sequences:
        seen[tokens[0] if tokens else model.eos_id] += 1
    text = torch.tensor([[*model.tokenizer.encode("ab"), 3]])  # type: ignore[union-attr]
    p = torch.softmax(model.logits(text)[0, 2].double() / temperature, -1)
    error = (p * (1 - p) / count).sqrt().clamp_min(1e-6)
    assert float(((seen / count - p).abs() / error).max()) < 4.5


def test_temperature_zero_takes_the_most_probable_token(model: Llama) -> None:
    one, two = (generate_llama(model, PROMPTS, max_new_tokens=8, temperature=0.0, seed=seed) for seed in (1, 2))
    assert one.sequences == two.sequences
    tokens = one.sequences[0]
    text = torch.tensor([[*model.tokenizer.encode("abc"), *tokens, 3]])  # type: ignore[union-attr]
    assert model.logits(text)[0, 3:].argmax(-1).tolist()[: len(tokens)] == tokens
    with pytest.raises(CelerisError, match="temperature"):
        generate_llama(model, [""], temperature=-1.0)


@pytest.mark.parametrize("tied", [False, True])
def test_files_hold_every_matrix_once(tied: bool, tmp_path: Path) -> None:
    spec = {
        "_target_": "celeris.baselines.Llama", "vocab_size": 11, "max_length": 32, "width": 32, "depth": 2, "heads": 2,
        "mlp_width": 48, "tie_embeddings": tied, "unk_id": 2,
    }  # fmt: skip
    model = LanguageModel.from_spec(spec)
    model.load_state_dict(small_llama(tied).state_dict())
    model.tokenizer = small_llama().tokenizer
    roles = parameter_roles(model)
    every = [parameter for role in roles for parameter in role]
    assert len({id(p) for p in every}) == len(every) and sum(p.numel() for p in every) == model.num_parameters
    assert [p.shape for p in roles.embedding] == [(11, 32)] and len(roles.matrices) == 14
    assert sum(value.numel() for value in model.state_dict().values()) == model.num_parameters
    loaded = LanguageModel.from_pretrained(model.save_pretrained(tmp_path))
    assert isinstance(loaded, Llama) and loaded.weight_hash == model.weight_hash
    rows = torch.randint(3, 11, (2, 10))
    assert torch.equal(loaded.logits(rows), model.eval().logits(rows))
    assert (loaded.network.lm_head.weight is loaded.network.model.embed_tokens.weight) == tied
    assert generate_llama(loaded, ["ab"], max_new_tokens=5).sequences[0] is not None


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CelerisError, match="multiple"):
        Llama(11, 32, 30, 2, 4, 48)
