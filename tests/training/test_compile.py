import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "check", ["captures", pytest.param("trains", marks=pytest.mark.slow), pytest.param("swaps", marks=pytest.mark.slow)]
)
def test_compiled_is_eager(tmp_path, check):
    """See tests/training/compiled.py."""
    command = [sys.executable, "-m", "tests.training.compiled", check, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
