"""Settings of the whole suite: offline, one thread a process, and shapes checked at every call."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from jaxtyping import install_import_hook

# Before any module of the package is imported: the annotated functions of the rooms that do the mathematics then check
# the types and shapes they are given.
ROOMS = ("embedding", "denoiser", "rounding", "model", "objectives", "sampling")
install_import_hook([f"celeris.{room}" for room in ROOMS], "beartype.beartype")
