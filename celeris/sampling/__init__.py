"""From noise to text: grids, solvers, guidance, the diffusers-like scheduler, and `generate`."""

from celeris.sampling.adaptive import Unchanged
from celeris.sampling.autoregressive import generate_autoregressive
from celeris.sampling.generate import generate, stream
from celeris.sampling.grids import Grid, Karras, Quantiles, UniformLogSNR
from celeris.sampling.guidance import Clamp, ClassifierFreeGuidance, Guidance, Guided, SelfConditioningGuidance, TopP
from celeris.sampling.infill import InfillOutput, fill_in_the_middle, infill
from celeris.sampling.output import GenerateOutput, Piece, StepEnd
from celeris.sampling.overflow import Overflow, Refuse, Slide
from celeris.sampling.pieces import Pieces
from celeris.sampling.request import Message, Prompt
from celeris.sampling.scheduler import Scheduler
from celeris.sampling.solvers import (
    DDIM,
    Ancestral,
    Churn,
    DPMSolverPP2M,
    Euler,
    FullRenoise,
    Heun,
    OneStep,
    Solver,
)
from celeris.sampling.template import Blank, parse_template

__all__ = [
    "DDIM",
    "Ancestral",
    "Blank",
    "Churn",
    "Clamp",
    "ClassifierFreeGuidance",
    "DPMSolverPP2M",
    "Euler",
    "FullRenoise",
    "GenerateOutput",
    "Grid",
    "Guidance",
    "Guided",
    "Heun",
    "InfillOutput",
    "Karras",
    "Message",
    "OneStep",
    "Overflow",
    "Piece",
    "Pieces",
    "Prompt",
    "Quantiles",
    "Refuse",
    "Scheduler",
    "SelfConditioningGuidance",
    "Slide",
    "Solver",
    "StepEnd",
    "TopP",
    "Unchanged",
    "UniformLogSNR",
    "fill_in_the_middle",
    "generate",
    "generate_autoregressive",
    "infill",
    "parse_template",
    "stream",
]
