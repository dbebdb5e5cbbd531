"""make chaos: SIGTERM, SIGUSR1 and SIGUSR2 at random moments, each to one rank of a run that is then continued.

    python -m tests.chaos.signals --ranks 2 --times 10 --seed 7

Each must end all ranks with a checkpoint of the step in progress, the first with status 128 + its number and the others
with 0, also when it comes during a validation or while a checkpoint is written. The rank's loader workers get it too.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos import ranks, runs
from tests.chaos.kills import EVERY

PLACES = ("train", "update", "validation", "save", "written", "renamed")
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def preempt(place: Path, world_size: int, times: int, seed: int) -> None:
    """Raises AssertionError where a signal was not heeded, or the run is not the one that got none."""
    runs.corpus(place)
    steps, draw = 12 * -(-6 * times // 12), random.Random(seed)

    def start(run: str, name: str, *more: str) -> list[ranks.Rank]:
        rows = runs.GLOBAL_BATCH // world_size
        every = [*EVERY, "datamodule.num_workers=1"]
        words = runs.words(place, run, *every, *more, steps=steps, ranks=world_size, rows=rows)
        return ranks.start(words, world_size, place / "logs" / name)

    unharmed = start("unharmed", "unharmed")
    assert ranks.finish(unharmed, 600) == [0] * world_size, ranks.logs(unharmed)
    done = 0
    for number in range(times):
        began, name = time.monotonic(), f"signal-{number + 1:02d}"
        where, which = PLACES[number % len(PLACES)], SIGNALS[number % len(SIGNALS)]
        target, post = draw.randrange(world_size), place / "post" / name
        standing = 0 if where in ("written", "renamed") else draw.randrange(world_size)
        post.mkdir(parents=True)
        stand = {"_target_": "chaos_points.StandStill", "place": where, "step": done + draw.randint(1, 3), "seconds": 1,
                 "rank": standing, "folder": runs.quoted(str(post)), "whole": True}  # fmt: skip
        started = start("signalled", name, *(f"+callbacks.stand.{key}={value}" for key, value in stand.items()))
        step = wait(started, post / "here")
        os.killpg(started[target].pid, which)
        codes = ranks.finish(started, 120)
        assert codes == [128 + which] + [0] * (world_size - 1), (codes, ranks.logs(started))
        assert not ranks.leftovers(started), "processes were left"
        done = runs.last(place, "signalled")["global_step"]
        assert done == step + 1, f"{which.name} in {where} of step {step} left a checkpoint of step {done}"
        told = f"{which.name} to rank {target} while rank {standing} stood in {where} of step {step}"
        spent = time.monotonic() - began
        print(f"{number + 1:2d}/{times} {told}: saved at step {done}, status {codes}; {spent:.0f} s", flush=True)
    final = start("signalled", "final")
    assert ranks.finish(final, 600) == [0] * world_size, ranks.logs(final)
    gap = runs.distance(*(runs.weights(runs.last(place, run)) for run in ("unharmed", "signalled")))
    assert gap <= (0.0 if world_size == 1 else 1e-6), f"the weights differ by {gap}"
    runs.check_samples(place, "signalled", steps)
    runs.check_metrics(place, "signalled", steps, times + 1)
    print(f"largest difference of weights, optimizer and average {gap:g}; every sample once a pass", flush=True)


def wait(started: list[ranks.Rank], here: Path) -> int:
    """Until a rank stands still; the step it is in."""
    deadline = time.monotonic() + 300
    while not here.exists():
        assert time.monotonic() < deadline and all(rank.code is None for rank in started), ranks.logs(started)
        time.sleep(0.01)
    return int(json.loads(here.read_text())["step"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("--ranks", 2), ("--times", 10), ("--seed", 7)):
        parser.add_argument(name, type=int, default=value)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        try:
            preempt(Path(folder), given.ranks, given.times, given.seed)
        except AssertionError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
