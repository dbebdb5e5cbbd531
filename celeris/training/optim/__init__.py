"""Optimizers (AdamW, Muon with AdamW), their parameter groups, and the learning-rate schedule."""

from celeris.training.optim.builders import MuonAdamW, adamw, muon_adamw
from celeris.training.optim.lr import WarmupStableDecay
from celeris.training.optim.muon import Muon

__all__ = ["Muon", "MuonAdamW", "WarmupStableDecay", "adamw", "muon_adamw"]
