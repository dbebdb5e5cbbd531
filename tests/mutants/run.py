"""`python -m tests.mutants.run`: puts each fault of `faults.py` into a copy of the project and runs the tests named
with it, which must fail. First the same tests must pass without any fault. Exit status 0 when every fault is caught."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("celeris", "configs", "tests", "docs", "pyproject.toml", "README.md", "Makefile", "train.py", "sample.py",
          "evaluate.py")  # fmt: skip
LIMIT = 400
"""Seconds a run of tests may take."""
PASSED, FAILED = 0, 1  # pytest's exit status; anything else says that the tests did not run


def occurrences(fault: Fault) -> int:
    """How often the fault's text occurs in its file."""
    file = ROOT / fault.file
    return file.read_text(encoding="utf-8").count(fault.old) if file.is_file() else 0


def copy_project(folder: Path) -> None:
    """What the tests need, without caches and runs."""
    folder.mkdir()
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            shutil.copy(source, folder / name)


@contextmanager
def applied(fault: Fault, folder: Path) -> Iterator[None]:
    """The fault in the copy at `folder`, taken out again afterwards."""
    file = folder / fault.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")


def run_tests(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
    """pytest's exit status (-1: out of time) and what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return -1, f"more than {LIMIT} s"
    return done.returncode, done.stdout + done.stderr


def verdict(status: int) -> str:
    """One word for pytest's exit status on a copy with a fault."""
    return {FAILED: "caught", PASSED: "SURVIVED"}.get(status, "BROKEN")


def main(words: Sequence[str] | None = None) -> int:
    """Print one line a fault and caught/total."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__)
    parser.add_argument("words", nargs="*", help="only faults whose name has one of these words in it")
    parser.add_argument("--jobs", type=int, default=2, help="copies that are tried at once")
    given = parser.parse_args(words)
    faults = [fault for fault in FAULTS if not given.words or any(word in fault.name for word in given.words)]
    if wrong := [fault for fault in faults if occurrences(fault) != 1]:
        for fault in wrong:
            print(
                f"{fault.file} has the text of {fault.name!r} {occurrences(fault)} times; mend tests/mutants/faults.py."
            )
        return 2
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(given.jobs):
            copy_project(folder := Path(place) / str(number))
            copies.put(folder)

        def attempt(tests: Sequence[str], fault: Fault | None) -> tuple[int, str]:
            folder = copies.get()
            try:
                if fault is None:
                    return run_tests(folder, tests)
                with applied(fault, folder):
                    return run_tests(folder, tests)
            finally:
                copies.put(folder)

        with ThreadPoolExecutor(given.jobs) as pool:
            files = sorted({test for fault in faults for test in fault.tests})
            parts = [part for k in range(given.jobs) if (part := files[k :: given.jobs])]
            for status, text in pool.map(lambda part: attempt(part, None), parts):
                if status != PASSED:
                    print(f"{text}\nThese tests fail without any fault, so they cannot show one.")
                    return 2
            caught = 0
            for fault, (status, text) in zip(faults, pool.map(lambda f: attempt(f.tests, f), faults), strict=True):
                caught += status == FAILED
                by = [line.split(" - ")[0] for line in text.splitlines() if line.startswith("FAILED ")]
                print(f"{verdict(status):9} {fault.name:58} {by[0].removeprefix('FAILED ') if by else ''}", flush=True)
                if status not in (PASSED, FAILED):
                    print(text)
    print(f"{caught}/{len(faults)} caught in {time.perf_counter() - began:.0f} s")
    return int(caught < len(faults))


if __name__ == "__main__":
    sys.exit(main())
