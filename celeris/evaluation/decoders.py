"""The decoders of a model that an evaluation looks at: one rule for each kind of model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, singledispatch
from typing import Any

from celeris.baselines import Llama, MaskedLM, generate_llama, generate_masked
from celeris.errors import CelerisError
from celeris.evaluation.record import Decoder, describe_solver
from celeris.evaluation.slug import slug
from celeris.model import DiffusionLM
from celeris.noise.path import fitting_stagger
from celeris.sampling import DDIM, Solver, generate, generate_autoregressive


@dataclass(frozen=True)
class Choices:
    """What varies.

    Attributes:
        num_inference_steps: solver steps a block.
        masked_steps: steps of a masked-diffusion model over its whole canvas.
        temperatures: of diffusion.
        autoregressive_temperatures: of what writes token by token.
        solvers: name → solver.
        masked_temperatures: of masked diffusion; None: as `temperatures`.
    """

    num_inference_steps: Sequence[int] = (2, 4, 8, 16)
    masked_steps: Sequence[int] = (32, 64, 128, 256)
    temperatures: Sequence[float] = (0.7,)
    autoregressive_temperatures: Sequence[float] = (1.0,)
    solvers: Mapping[str, Solver] = field(default_factory=lambda: {"eta_1": DDIM(eta=1.0)})
    masked_temperatures: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not self.num_inference_steps or not self.temperatures or not self.solvers:
            raise CelerisError("At least one step count, one temperature and one solver are needed.")
        if len({slug(name) for name in self.solvers}) < len(self.solvers):
            raise CelerisError(f"Names of solvers must differ in letters or digits, unlike {', '.join(self.solvers)}.")


@singledispatch
def decoders(model: Any, choices: Choices) -> list[Decoder]:
    """Every decoder of `model` that `choices` ask for, cheapest first within a temperature.

    Raises:
        CelerisError: nothing is registered for this kind of model.
    """
    raise CelerisError(f"No decoder is known for a {type(model).__name__}; register one with decoders.register.")


@decoders.register
def _(model: DiffusionLM, choices: Choices) -> list[Decoder]:
    found = []
    for temperature in choices.temperatures:
        for name, solver in choices.solvers.items():
            for steps in choices.num_inference_steps:
                words = [f"{steps} steps", *([name] if len(choices.solvers) > 1 else []), f"T {temperature:g}"]
                setting = {
                    "decoder": "diffusion",
                    "num_inference_steps": steps,
                    "solver_name": name,
                    "solver": describe_solver(solver),
                    "temperature": temperature,
                    "stagger": fitting_stagger(model.stagger, steps),
                    "block_length": model.block_length,
                }
                write = partial(generate, num_inference_steps=steps, solver=solver, temperature=temperature)
                key = f"celeris/steps_{steps}/{slug(name)}/t{temperature:g}"
                found.append(Decoder(key, ", ".join(["celeris", *words]), setting, write))
    if model.has_next_token_head:
        for temperature in choices.autoregressive_temperatures:
            setting = {
                "decoder": "autoregressive",
                "num_inference_steps": None,
                "temperature": temperature,
                "block_length": 1,
            }
            found.append(
                Decoder(
                    f"celeris/next_token/t{temperature:g}",
                    f"celeris, next token, T {temperature:g}",
                    setting,
                    partial(generate_autoregressive, temperature=temperature),
                )
            )
    return found


@decoders.register
def _(model: Llama, choices: Choices) -> list[Decoder]:
    return [
        Decoder(
            f"llama/t{temperature:g}",
            f"llama, T {temperature:g}",
            {"decoder": "llama", "num_inference_steps": None, "temperature": temperature, "block_length": 1},
            partial(generate_llama, temperature=temperature),
        )
        for temperature in choices.autoregressive_temperatures
    ]


@decoders.register
def _(model: MaskedLM, choices: Choices) -> list[Decoder]:
    return [
        Decoder(
            f"mdlm/steps_{steps}/t{temperature:g}",
            f"mdlm, {steps} steps, T {temperature:g}",
            {
                "decoder": "masked",
                "num_inference_steps": steps,
                "temperature": temperature,
                "block_length": model.max_length,
            },
            partial(generate_masked, num_inference_steps=steps, temperature=temperature),
        )
        for temperature in (
            choices.temperatures if choices.masked_temperatures is None else choices.masked_temperatures
        )
        for steps in choices.masked_steps
    ]
