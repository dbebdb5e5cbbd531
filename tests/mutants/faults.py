"""Deliberate faults, each with the tests that must notice it. To add one, add an entry; `make mutants` tries it."""

from typing import NamedTuple


class Fault(NamedTuple):
    """A mistake somebody could make.

    Attributes:
        name: what is wrong.
        file: from the root of the project.
        old: text that occurs there exactly once.
        new: what the mistake would look like.
        tests: pytest names, narrow enough to take seconds.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "alpha and sigma swapped",
        "celeris/noise/process.py",
        "AlphaSigma(torch.sigmoid(-gamma).sqrt(), torch.sigmoid(gamma).sqrt())",
        "AlphaSigma(torch.sigmoid(gamma).sqrt(), torch.sigmoid(-gamma).sqrt())",
        ("tests/core/test_noise.py",),
    ),
    Fault(
        "evidence without the sigma²",
        "celeris/noise/process.py",
        "return torch.exp(0.5 * (F.softplus(-gamma) - gamma))",
        "return torch.exp(-0.5 * F.softplus(gamma))",
        ("tests/core/test_noise.py",),
    ),
    Fault(
        "noise added by its variance",
        "celeris/noise/process.py",
        "alpha[..., None] * x0 + sigma[..., None] * eps",
        "alpha[..., None] * x0 + sigma[..., None] ** 2 * eps",
        ("tests/core/test_noise.py",),
    ),
    Fault(
        "the bound without its ½",
        "celeris/noise/posterior.py",
        "return 0.5 * torch.exp(-_wide(gamma)) * squared_error",
        "return torch.exp(-_wide(gamma)) * squared_error",
        ("tests/oracles/test_bound.py::test_single_token_bound_equals_entropy[linear-3]",),
    ),
    Fault(
        "the bound without its prior term",
        "celeris/evaluation/bound.py",
        "out[:, 2] = (prior * counted).flatten(1).sum(1)",
        "out[:, 2] = 0.0",
        ("tests/oracles/test_bound.py::test_a_path_that_ends_early_costs_exactly_the_divergence_from_the_prior",),
    ),
    Fault(
        "the bound without its reconstruction term",
        "celeris/evaluation/bound.py",
        "        if sample == 0:\n",
        "        if sample < 0:\n",
        ("tests/evaluation/test_reconstruction.py",),
    ),
    Fault(
        "the bound's noise keyed by the place in the batch",
        "celeris/evaluation/bound.py",
        'generator(seed, "bound", k, device) for k in index.tolist()',
        'generator(seed, "bound", k, device) for k in range(len(index))',
        ("tests/oracles/test_bound.py::test_bound_and_next_token_do_not_depend_on_batch_size_and_ignore_pad",),
    ),
    Fault(
        "the training bound without the schedule's slope",
        "celeris/objectives/variational_bound.py",
        " * model.schedule.slope(reading.u)",
        "",
        ("tests/objectives/test_bound.py",),
    ),
    Fault(
        "training noise keyed by the place in the batch",
        "celeris/noise/levels.py",
        "for row, key in enumerate(rows):",
        "for row, key in enumerate(range(len(rows))):",
        ("tests/core/test_noise.py", "tests/noise/test_times.py"),
    ),
    Fault(
        "training conditions on x0 itself instead of its estimate",
        "celeris/objectives/objective.py",
        "carried[chosen] = model.x0_hat(first).to(z.dtype)",
        "carried[chosen] = x0[chosen].to(z.dtype)",
        ("tests/objectives/test_self_conditioning.py",),
    ),
    Fault(
        "the sampler forgets its last estimate",
        "celeris/sampling/canvas.py",
        "out = denoiser.denoise(z, t, context, carried, scheduler.stagger)",
        "out = denoiser.denoise(z, t, context, None, scheduler.stagger)",
        ("tests/core/test_generate.py::test_the_loop_by_hand_is_generate",),
    ),
    Fault(
        "loss on positions that wait for their turn",
        "celeris/objectives/objective.py",
        "text & (noise.u > 0) & (noise.u < 1)",
        "text & (noise.u > 0)",
        ("tests/objectives/test_bound.py", "tests/core/test_model.py"),
    ),
    Fault(
        "a grid that ends one step early",
        "celeris/sampling/grids/quantiles.py",
        "device=device) / steps",
        "device=device) / (steps + 1)",
        ("tests/core/test_generate.py::test_row_k_of_seed_s_is_the_single_run_of_seed_s_plus_k",),
    ),
    Fault(
        "a solver that is told the level after next",
        "celeris/sampling/scheduler.py",
        "later = self._path[self._call + 1]",
        "later = self._path[min(self._call + 2, len(self._path) - 1)]",
        ("tests/oracles/test_solver_order.py::test_the_global_error_falls_with_the_order_of_the_solver",),
    ),
    Fault(
        "DDIM keeps the old noise at its old size",
        "celeris/sampling/solvers/base.py",
        "kept = old * then.sigma / now.sigma",
        "kept = old + 0 * now.sigma",
        ("tests/oracles/test_samplers.py::test_a_step_with_an_exact_x0_keeps_the_forward_marginal",),
    ),
    Fault(
        "DPM-Solver++ without its correction",
        "celeris/sampling/solvers/dpmpp_2m.py",
        "halfway = x0_hat + (ratio / 2).to(z.dtype)[..., None] * (x0_hat - before)",
        "halfway = x0_hat + 0 * (ratio / 2).to(z.dtype)[..., None] * (x0_hat - before)",
        ("tests/oracles/test_solver_order.py::test_the_global_error_falls_with_the_order_of_the_solver",),
    ),
    Fault(
        "the flow's divergence with the wrong sign",
        "celeris/evaluation/ode.py",
        "latent.flatten(1).sum(1) + end.integral",
        "latent.flatten(1).sum(1) - end.integral",
        ("tests/oracles/test_ode.py::test_a_path_that_ends_early_costs_exactly_the_divergence_from_the_prior",),
    ),
    Fault(
        "a Gumbel slope without 1/u",
        "celeris/noise/gumbel.py",
        "self.beta.double() / (-u * torch.log(u))",
        "self.beta.double() / -torch.log(u)",
        ("tests/core/test_noise.py", "tests/noise/test_schedules.py"),
    ),
    Fault(
        "a fixed schedule's slope in the paper's time",
        "celeris/noise/fixed.py",
        "return ((self.end - self.start) * self.slope_of(self.paper_time(t))).to(t.dtype)",
        "return self.slope_of(self.paper_time(t)).to(t.dtype)",
        ("tests/noise/test_schedules.py::test_its_slope_is_the_derivative",),
    ),
    Fault(
        "staggered positions at the speed of the clock",
        "celeris/noise/path.py",
        "torch.where(moving, 1 + s, torch.zeros_like(raw))",
        "torch.where(moving, 1 + 0 * s, torch.zeros_like(raw))",
        ("tests/core/test_noise.py",),
    ),
    Fault(
        "a posterior that gives x0 too much weight",
        "celeris/noise/posterior.py",
        "return PosteriorCoefficients(z, alpha_s * share,",
        "return PosteriorCoefficients(z, alpha_s * share.sqrt(),",
        ("tests/noise/test_posterior.py",),
    ),
    Fault(
        "the canvas sees one context position too many",
        "celeris/denoiser/attention.py",
        "past = torch.arange(self.context, device=device) < self.start.repeat",
        "past = torch.arange(self.context, device=device) <= self.start.repeat",
        ("tests/core/test_model.py::test_all_blocks_at_once_equal_one_block_at_a_time",),
    ),
    Fault(
        "the next-token head is scored on the token it has seen",
        "celeris/objectives/tokens.py",
        "answers_only(batch.context, batch.asked, pad_id)[:, 1:]",
        "answers_only(batch.context, batch.asked, pad_id)[:, :-1]",
        ("tests/objectives/test_next_token.py",),
    ),
    Fault(
        "micro-batches that give the mean of their means",
        "celeris/batch.py",
        "own if self.means is None else self.means[name].to(own.dtype)",
        "own",
        ("tests/objectives/test_micro_batches.py",),
    ),
    Fault(
        "masked diffusion trained without its 1/t",
        "celeris/baselines/masked.py",
        "weight = masked / t.to(ids.device, torch.float32)[:, None]",
        "weight = masked.float()",
        ("tests/baselines/test_masked.py",),
    ),
    Fault(
        "a masked token counts the same however many are masked",
        "celeris/baselines/masked.py",
        "nats[chunk] += (loss.sum(1) * lengths / count).cpu() / samples",
        "nats[chunk] += loss.sum(1).cpu() / samples",
        ("tests/baselines/test_masked.py",),
    ),
    Fault(
        "the autoregressive baseline reads the token it predicts",
        "celeris/baselines/llama.py",
        "inputs = F.pad(ids[:, :-1], (1, 0), value=self.pad_id)",
        "inputs = ids",
        ("tests/baselines/test_llama.py",),
    ),
    Fault(
        "what stands behind EOS counts as output",
        "celeris/evaluation/timing.py",
        "        if int(token) == eos_id:\n            break\n",
        "        if int(token) == eos_id:\n            continue\n",
        ("tests/evaluation/test_timing.py",),
    ),
    Fault(
        "the corpus perplexity is the mean of the texts'",
        "celeris/evaluation/reading.py",
        '"gen_ppl": total.perplexity if total.tokens else None',
        '"gen_ppl": sum(own) / len(own) if own else None',
        ("tests/evaluation/test_scorer.py", "tests/evaluation/test_quality.py"),
    ),
    Fault(
        "the front keeps what something else beats",
        "celeris/evaluation/comparison/points.py",
        "or places[i][1] > places[front[-1]][1] or",
        "or places[i][1] < places[front[-1]][1] or",
        ("tests/evaluation/test_comparison.py",),
    ),
    Fault(
        "kept results are found under any settings",
        "celeris/evaluation/store.py",
        "hashlib.sha256(text.encode()).hexdigest()[:20]",
        "hashlib.sha256(b'').hexdigest()[:20]",
        ("tests/evaluation/test_store.py",),
    ),
)
