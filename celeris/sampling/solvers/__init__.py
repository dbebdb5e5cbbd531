"""Solvers: how z moves once the denoiser has spoken. One file each; a new one is a subclass of `OneStep` or `Solver`.

| solver | order | calls for n steps | fresh noise |
|---|---|---|---|
| DDIM(eta) | 1 (eta 0) | n | eta > 0 |
| Euler | 1 | n | – |
| Heun | 2 | 2n − 1 | – |
| DPMSolverPP2M | 2 | n | – |
| Ancestral | 1 | n | yes |
| Churn | 1 | n | yes |
| FullRenoise | – | n | yes |
"""

from celeris.sampling.solvers.ancestral import Ancestral
from celeris.sampling.solvers.base import OneStep, Solver, Stepper
from celeris.sampling.solvers.churn import Churn
from celeris.sampling.solvers.ddim import DDIM
from celeris.sampling.solvers.dpmpp_2m import DPMSolverPP2M
from celeris.sampling.solvers.euler import Euler
from celeris.sampling.solvers.heun import Heun
from celeris.sampling.solvers.renoise import FullRenoise

__all__ = [
    "DDIM",
    "Ancestral",
    "Churn",
    "DPMSolverPP2M",
    "Euler",
    "FullRenoise",
    "Heun",
    "OneStep",
    "Solver",
    "Stepper",
]
