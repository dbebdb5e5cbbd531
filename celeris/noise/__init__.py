"""Schedules gamma(t), the forward process, and the levels training draws."""

from celeris.noise.gumbel import GumbelSchedule
from celeris.noise.loss_cdf import LossCDFSchedule
from celeris.noise.process import add_noise, alpha_sigma, evidence_scale, snr
from celeris.noise.schedule import Observed, Schedule

__all__ = [
    "GumbelSchedule",
    "LossCDFSchedule",
    "Observed",
    "Schedule",
    "add_noise",
    "alpha_sigma",
    "evidence_scale",
    "snr",
]
