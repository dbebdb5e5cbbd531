"""From noise to text: grids, solvers, guidance, the diffusers-like scheduler, and `generate`."""

from celeris.sampling.autoregressive import generate_autoregressive
from celeris.sampling.generate import generate
from celeris.sampling.grids import Grid, Karras, Quantiles, UniformLogSNR
from celeris.sampling.guidance import Clamp, ClassifierFreeGuidance, Guidance, Guided, SelfConditioningGuidance, TopP
from celeris.sampling.output import GenerateOutput, StepEnd
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

__all__ = [
    "DDIM",
    "Ancestral",
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
    "Karras",
    "OneStep",
    "Quantiles",
    "Scheduler",
    "SelfConditioningGuidance",
    "Solver",
    "StepEnd",
    "TopP",
    "UniformLogSNR",
    "generate",
    "generate_autoregressive",
]
