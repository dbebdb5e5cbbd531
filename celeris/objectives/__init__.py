"""Training losses; every term is named in the output."""

from celeris.objectives.cross_entropy import CrossEntropy, ObjectiveOutput

__all__ = ["CrossEntropy", "ObjectiveOutput"]
