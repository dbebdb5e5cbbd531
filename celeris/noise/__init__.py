"""Schedules gamma(t), the forward process, and the levels training draws."""

from celeris.noise.cosine import CosineSchedule
from celeris.noise.entropy_rate import EntropyRateSchedule
from celeris.noise.fixed import FixedSchedule
from celeris.noise.gumbel import GumbelSchedule
from celeris.noise.karras import KarrasSchedule
from celeris.noise.learned import LearnedSchedule
from celeris.noise.linear import LinearSchedule
from celeris.noise.loss_cdf import LossCDFSchedule
from celeris.noise.process import add_noise, alpha_sigma, evidence_scale, snr
from celeris.noise.rectified_flow import RectifiedFlowSchedule
from celeris.noise.schedule import Observed, Schedule
from celeris.noise.sqrt import SqrtSchedule

__all__ = [
    "CosineSchedule",
    "EntropyRateSchedule",
    "FixedSchedule",
    "GumbelSchedule",
    "KarrasSchedule",
    "LearnedSchedule",
    "LinearSchedule",
    "LossCDFSchedule",
    "Observed",
    "RectifiedFlowSchedule",
    "Schedule",
    "SqrtSchedule",
    "add_noise",
    "alpha_sigma",
    "evidence_scale",
    "snr",
]
