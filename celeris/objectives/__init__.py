"""Training losses; every term is named in the output."""

from celeris.objectives.cross_entropy import CrossEntropy
from celeris.objectives.mse import MeanSquaredError
from celeris.objectives.next_token import NextToken
from celeris.objectives.objective import Objective, ObjectiveOutput, Reading, Term
from celeris.objectives.tokens import token_loss
from celeris.objectives.variational_bound import VariationalBound
from celeris.objectives.warm_up import WarmUp
from celeris.objectives.weighting import EDM, ELBO, MinSNR, Sigmoid, Unit, Velocity, Weighting

__all__ = [
    "EDM",
    "ELBO",
    "CrossEntropy",
    "MeanSquaredError",
    "MinSNR",
    "NextToken",
    "Objective",
    "ObjectiveOutput",
    "Reading",
    "Sigmoid",
    "Term",
    "Unit",
    "VariationalBound",
    "Velocity",
    "WarmUp",
    "Weighting",
    "token_loss",
]
