"""Models of this package under lm-eval (`lm_eval.simple_evaluate`), registered there as "celeris".

    from celeris.interop.lm_eval import CelerisLM
    lm_eval.simple_evaluate(model=CelerisLM("runs/tiny/first"), tasks=[…])

lm-eval is imported when `CelerisLM` is first asked for.
"""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from celeris.errors import CelerisError
from celeris.evaluation.conditional import Pair, bound_nats, exact_nats
from celeris.interop.choice import loaded_model, only_decoder
from celeris.interop.pieces import cut_at, end_of, pair_of, stop_strings, windows_of
from celeris.language_model import LanguageModel
from celeris.tokenizer import TextTokenizer

GENERATION = ("until", "max_gen_toks")


class Requests:
    """What lm-eval asks of a model, answered by a `LanguageModel`; `CelerisLM` is this under lm-eval's base class.

    Args:
        pretrained: a model with its tokenizer, or a run or export folder.
        num_inference_steps: steps a block, or of a masked-diffusion model over its window.
        temperature: of everything written; what a task asks for (do_sample, temperature, top_p …) is not heeded and
            said so once.
        next_token: write and judge by the next-token head of a Celeris checkpoint: its likelihood is exact.
        approximate_likelihood: answer loglikelihood requests by an upper bound where there is no exact likelihood.
        likelihood_samples: noise levels a block, or masks a continuation, of the bound's estimate.
        max_gen_toks: output tokens where the task does not say; at most half the window in any case.
        seed: request k is written with seed + k.
        batch_size: rows of one forward pass; results do not depend on it.
        device: of a model that is loaded here.

    Attributes:
        report: counts of what did not go as asked: prompts cut on the left, outputs shortened, texts cut into windows.
    """

    def __init__(
        self,
        pretrained: LanguageModel | str | Path,
        *,
        num_inference_steps: int = 8,
        temperature: float = 0.7,
        next_token: bool = False,
        approximate_likelihood: bool = False,
        likelihood_samples: int = 8,
        max_gen_toks: int = 128,
        seed: int = 0,
        batch_size: int | str = 16,
        max_batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        self.model = loaded_model(pretrained, device)
        assert self.model.tokenizer is not None
        self.tokens: TextTokenizer = self.model.tokenizer
        if not str(batch_size).isdecimal() or int(batch_size) < 1:
            raise CelerisError(f"batch_size is {batch_size}; give a number of rows ≥ 1.")
        for name, value in (("likelihood_samples", likelihood_samples), ("max_gen_toks", max_gen_toks)):
            if value < 1:
                raise CelerisError(f"{name} is {value}; it must be at least 1.")
        self.decoder = only_decoder(self.model, num_inference_steps, temperature, next_token)
        self.exact = next_token or self.model.system == "llama"
        self.approximate_likelihood, self.likelihood_samples = approximate_likelihood, likelihood_samples
        self.max_gen_toks, self.seed, self.batch_size = max_gen_toks, seed, int(batch_size)
        self.report = {"prompts_cut": 0, "outputs_shortened": 0, "contexts_cut": 0, "texts_in_windows": 0}
        self._said: set[str] = set()

    @property
    def likelihood_kind(self) -> str:
        """What a loglikelihood answer is."""
        if self.exact:
            return "exact"
        return f"approximation: −1 × upper bound on −log p, estimated from {self.likelihood_samples} samples"

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Text after each context, cut at the first of its stop strings.

        A context that leaves less than `max_gen_toks` of the window keeps its end; `report` counts those.
        """
        limits, prompts, stops = [], [], []
        for context, options in (request.args for request in requests):
            others = sorted(set(options) - set(GENERATION))
            if others:
                self._say(f"{', '.join(others)} of the task not heeded: {self.decoder.label} writes as it was set up")
            wanted = int(options.get("max_gen_toks") or self.max_gen_toks)
            limit = min(wanted, max(self.model.max_length // 2, 1))
            prompt = end_of(self.tokens, context, self.model.max_length - limit)
            self.report["outputs_shortened"] += limit < wanted
            self.report["prompts_cut"] += prompt != context
            limits.append(limit)
            prompts.append(prompt)
            stops.append(stop_strings(options.get("until")))
        self._say_cut("prompts_cut", "prompts longer than the window leaves room for are cut on the left")
        self._say_cut(
            "outputs_shortened", f"outputs are limited to half the window, {self.model.max_length // 2} tokens"
        )
        texts = [self.tokens.decode(ids) for ids in self._write(prompts, limits)]
        return [cut_at(text, words) for text, words in zip(texts, stops, strict=True)]

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(log p of the continuation after its context, does this model at its settings write just that?).

        Raises:
            CelerisError: only a bound is known and `approximate_likelihood` is not set.
        """
        self._check_likelihood()
        pairs = []
        for context, continuation in (request.args for request in requests):
            pair, cut = pair_of(self.tokens, context, continuation, self.model.max_length)
            pairs.append(pair)
            self.report["contexts_cut"] += cut
        if not pairs:
            return []
        self._say_cut("contexts_cut", "contexts that do not fit into the window are cut on the left")
        if self.exact:
            nats, greedy = exact_nats(self.model, pairs, self.batch_size)
        else:
            nats, greedy = self._bound(pairs), self._writes(pairs)
        return list(zip((-nats).tolist(), greedy, strict=True))

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """log p of each text. One longer than the window is the sum of parts: a whole window, then half windows that
        see the half window before them.

        Raises:
            CelerisError: as `loglikelihood`.
        """
        self._check_likelihood()
        pairs: list[Pair] = []
        owners: list[int] = []
        for number, (text,) in enumerate(request.args for request in requests):
            ids = self.tokens.encode(text)
            parts = list(windows_of(ids, self.model.max_length))
            self.report["texts_in_windows"] += len(parts) > 1
            pairs += parts
            owners += [number] * len(parts)
        found = [0.0] * len(requests)
        if pairs:
            nats = exact_nats(self.model, pairs, self.batch_size)[0] if self.exact else self._bound(pairs)
            for number, value in zip(owners, nats.tolist(), strict=True):
                found[number] -= value
        return found

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _bound(self, pairs: Sequence[Pair]) -> Tensor:
        return bound_nats(self.model, pairs, self.likelihood_samples, self.seed, self.batch_size)

    def _write(self, prompts: Sequence[str], limits: Sequence[int]) -> list[list[int]]:
        """Ids of at most `limits` tokens after each prompt; row k is written with seed + k whatever the batches."""
        found: list[list[int]] = []
        while len(found) < len(prompts):
            first = last = len(found)
            while last < len(prompts) and last - first < self.batch_size and limits[last] == limits[first]:
                last += 1
            output = self.decoder.generate(
                self.model,
                list(prompts[first:last]),
                num_samples=1,
                max_new_tokens=limits[first],
                seed=self.seed + first,
            )
            found += [[int(token) for token in sequence] for sequence in output.sequences]
        return found

    def _writes(self, pairs: Sequence[Pair]) -> list[bool]:
        """Is each continuation what the decoder writes after its context? Contexts are written after once each."""
        longest: dict[str, int] = {}
        contexts = [self.tokens.decode(pair.context) for pair in pairs]
        for context, pair in zip(contexts, pairs, strict=True):
            longest[context] = max(longest.get(context, 0), len(pair.continuation))
        order = sorted(longest, key=lambda context: longest[context])
        fits = [context for context in order if self._fits(context, longest[context])]
        written = dict(zip(fits, self._write(fits, [longest[context] for context in fits]), strict=True))
        return [
            written.get(context, [])[: len(pair.continuation)] == pair.continuation
            for context, pair in zip(contexts, pairs, strict=True)
        ]

    def _fits(self, context: str, length: int) -> bool:
        return len(self.tokens.encode(context)) + length <= self.model.max_length

    def _check_likelihood(self) -> None:
        if not self.exact and not self.approximate_likelihood:
            raise CelerisError(
                f"A {self.model.system} model has no exact likelihood, only an upper bound on −log p; set "
                "approximate_likelihood=True to answer with it, or next_token=True where it has a next-token head."
            )
        if not self.exact:
            self._say(f"loglikelihood is an {self.likelihood_kind}; compare it with no exact one")

    def _say_cut(self, name: str, sentence: str) -> None:
        if self.report[name]:
            self._say(f"{sentence} ({self.report[name]} so far)")

    def _say(self, sentence: str) -> None:
        """Once each, on stderr."""
        if sentence not in self._said:
            self._said.add(sentence)
            print(f"celeris under lm-eval: {sentence}.", file=sys.stderr)


@cache
def _adapter() -> type:
    """`Requests` under lm-eval's base class, registered as "celeris".

    Raises:
        CelerisError: lm-eval is not installed.
    """
    try:
        from lm_eval.api.model import LM
        from lm_eval.api.registry import register_model
    except ImportError as error:
        raise CelerisError(f"CelerisLM needs lm-eval ({error}); pip install 'lm-eval>=0.4.9'.") from error
    made: type = register_model("celeris")(type("CelerisLM", (Requests, LM), {"__module__": __name__}))
    return made


def __getattr__(name: str) -> Any:
    if name == "CelerisLM":
        return _adapter()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
