"""Grids: at which canvas times the denoiser is called. One file each; a new one subclasses `LevelGrid` or `Grid`."""

from celeris.sampling.grids.base import Grid, LevelGrid, check_times
from celeris.sampling.grids.karras import Karras
from celeris.sampling.grids.log_snr import UniformLogSNR
from celeris.sampling.grids.quantiles import Quantiles

__all__ = ["Grid", "Karras", "LevelGrid", "Quantiles", "UniformLogSNR", "check_times"]
