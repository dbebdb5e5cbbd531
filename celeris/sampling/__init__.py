"""From noise to text: grids, solvers, the diffusers-like scheduler, and `generate`."""

from celeris.sampling.autoregressive import generate_autoregressive
from celeris.sampling.generate import generate
from celeris.sampling.output import GenerateOutput, StepEnd
from celeris.sampling.scheduler import Scheduler
from celeris.sampling.solvers import DDIM

__all__ = ["DDIM", "GenerateOutput", "Scheduler", "StepEnd", "generate", "generate_autoregressive"]
