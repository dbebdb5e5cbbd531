"""What FSDP hands to the wire in a real run of two processes, against the formula."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from celeris.scaling.plan import Plan
from celeris.scaling.small import trace_of
from celeris.scaling.states import States
from celeris.scaling.step_time import step_time
from tests.scaling.test_estimate import MACHINE, SIZE

PROGRAM = """
import json, os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from celeris.training.strategies import FullySharded
from tests.training.tiny import *

whole = []

def listen(name):  # what is gathered, or summed and divided up: the larger of the two buffers
    own = getattr(dist, name, None)
    def call(*words, **more):
        whole.append(max(x.numel() * x.element_size() for x in (*words, *more.values()) if isinstance(x, torch.Tensor)))
        return own(*words, **more)
    if own is not None:
        setattr(dist, name, call)

for name in ('all_gather_single', 'reduce_scatter_single', 'all_gather_into_tensor', 'reduce_scatter_tensor'):
    listen(name)
module = tiny_module(tiny_model(GumbelSchedule(1.0), dropout=0.0), optimizer=plain_descent)
layers = [4 * sum(p.numel() for p in layer.parameters()) for layer in module.model.layers]
total = 4 * sum(p.numel() for p in module.model.parameters())
fit(Path(sys.argv[1]), module, max_steps=2, val_every_n_steps=None, devices=2, strategy=FullySharded(),
    precision='bf16-mixed')
if os.environ.get('LOCAL_RANK', '0') == '0':
    Path(sys.argv[2]).write_text(json.dumps({'whole': sum(whole), 'layers': layers, 'total': total}))
"""


@pytest.mark.slow
def test_fsdp_sends_what_the_formula_says(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, tmp_path / "program.py", tmp_path / "run", tmp_path / "found.json"]
    subprocess.run(words, env=env, check=True, timeout=900)
    found = json.loads((tmp_path / "found.json").read_text())
    total, layers = found["total"], found["layers"]
    states = States(total, 0, total, 0, total, sum(layers), max(layers))
    trace = dataclasses.replace(trace_of(SIZE), states=states)
    plan = Plan(ranks=2, sharded=True, micro_batch=2, global_batch=8, length=16, steps=2)  # as in `fit`
    sent = found["whole"] / 2 / 2  # a step; each rank sends half of the whole
    assert step_time(trace, plan, MACHINE).sent == pytest.approx(sent, rel=0.01)  # rows are filled up to even ones
