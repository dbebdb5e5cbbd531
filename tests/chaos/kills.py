"""make chaos: kill −9 at random moments of a run, start the same command again, and hold it against an unharmed run.

    python -m tests.chaos.kills --ranks 2 --kills 20 --seed 7

The unharmed run comes first. Each further line is one kill: a process stands still at a place drawn by chance (or none
does, and the moment is drawn), one rank or all get SIGKILL, the others must end by themselves. Then last.ckpt must be
whole, and the command is given again. At the end weights, samples and metrics must be those of the unharmed run.
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
from typing import NamedTuple

from tests.chaos import ranks, runs

PLACES = ("train", "update", "validation", "save", "written", "renamed", "last", "any moment", "start")
BY_FIRST_RANK = ("written", "renamed", "last")  # only it writes
EVERY = ["callbacks.checkpoints.every_n_steps=3", "trainer.val_every_n_steps=4", "datamodule.val_batches=2"]
LONGEST_END = 90.0  # seconds in which the rank that is left must have ended


class Kill(NamedTuple):
    place: str
    standing: int
    victims: tuple[int, ...]
    after: int  # steps beyond the checkpoint
    delay: float  # seconds


def plan(count: int, world_size: int, seed: int) -> list[Kill]:
    """`count` kills, every place as often as the others."""
    draw = random.Random(seed)
    places: list[str] = []
    while len(places) < count:
        places += draw.sample(PLACES, len(PLACES))
    kills = []
    for place in places[:count]:
        everyone = tuple(range(world_size))
        chosen = draw.choice([(number,) for number in everyone] + [everyone])
        if place == "start":
            chosen = everyone  # ranks that have not met know nothing of each other: their launcher ends them
        standing = 0 if place in BY_FIRST_RANK else draw.choice(chosen)
        kills.append(Kill(place, standing, chosen, draw.randint(1, 4), draw.uniform(0, 0.3)))
    return kills


def chaos(place: Path, world_size: int, count: int, seed: int) -> None:
    """Raises AssertionError where the run is not the one that was never killed."""
    runs.corpus(place)
    steps = 12 * -(-7 * count // 12)
    began = time.monotonic()

    def words(run: str) -> list[str]:
        return runs.words(place, run, *EVERY, steps=steps, ranks=world_size, rows=runs.GLOBAL_BATCH // world_size)

    unharmed = ranks.start(words("unharmed"), world_size, place / "logs" / "unharmed")
    assert ranks.finish(unharmed, 600) == [0] * world_size, ranks.logs(unharmed)
    print(f"unharmed: {steps} steps on {world_size} process(es), {time.monotonic() - began:.0f} s", flush=True)
    done = 0
    for number, kill in enumerate(plan(count, world_size, seed), 1):
        began = time.monotonic()
        told, now = strike(place, words("killed"), world_size, kill, done, f"kill-{number:02d}")
        print(f"kill {number:2d}/{count} {told}; {time.monotonic() - began:.0f} s", flush=True)
        assert done <= now < steps, f"last.ckpt went from step {done} to {now} of {steps}"
        done = now
    final = ranks.start(words("killed"), world_size, place / "logs" / "final")
    assert ranks.finish(final, 600) == [0] * world_size, ranks.logs(final)
    assert len(list((place / "runs" / "debug").iterdir())) == 2, "a restart made another folder"
    check(place, world_size, steps, count)


def strike(place: Path, words: list[str], world_size: int, kill: Kill, done: int, name: str) -> tuple[str, int]:
    """One start and one kill: what to print, and the step of the checkpoint that is left."""
    post = place / "post" / name
    post.mkdir(parents=True)
    stand = [f"+callbacks.stand.{key}={value}" for key, value in (
        ("_target_", "chaos_points.StandStill"), ("place", kill.place.replace(" ", "_")), ("step", done + kill.after),
        ("rank", kill.standing), ("folder", runs.quoted(str(post))))]  # fmt: skip
    if kill.standing not in kill.victims:  # it finishes what it is at, and then misses the others
        stand += ["+callbacks.stand.seconds=2", "+callbacks.stand.whole=true"]
    started = ranks.start([*words, *stand], world_size, place / "logs" / name)
    where = wait_for(started, place, post, kill)
    time.sleep(kill.delay)
    for number in kill.victims:
        os.kill(started[number].pid, signal.SIGKILL)
    struck = time.monotonic()
    codes = ranks.finish(started, LONGEST_END)
    seconds = time.monotonic() - struck
    others = {number: code for number, code in enumerate(codes) if number not in kill.victims}
    assert all(code is not None and code > 0 for code in others.values()), (others, ranks.logs(started))
    assert all(codes[number] == -signal.SIGKILL for number in kill.victims), (codes, ranks.logs(started))
    assert not ranks.leftovers(started), "processes were left"
    last = runs.folder(place, "killed") / "checkpoints" / "last.ckpt"
    step = runs.load(last)["global_step"] if last.exists() else 0  # loading it whole is the check
    left = "".join(f", rank {number} ended by itself with {code}" for number, code in others.items())
    victims = " and ".join(f"rank {number}" for number in kill.victims)
    return f"{victims} {where}{left} after {seconds:.1f} s; last.ckpt has step {step}", step


def wait_for(started: list[ranks.Rank], place: Path, post: Path, kill: Kill) -> str:
    """Until the moment of the kill; says where the run is."""
    if kill.place == "start":
        time.sleep(3 * kill.delay)  # below what a short run needs to its end
        return "while starting"
    deadline, seen = time.monotonic() + 300, runs.folder(place, "killed") / "seen-0.jsonl"
    before = seen.stat().st_size if seen.exists() else 0
    while time.monotonic() < deadline and all(rank.code is None for rank in started):
        if kill.place == "any moment" and seen.exists() and seen.stat().st_size > before:
            return "at any moment"
        if (post / "here").exists():
            return f"in {kill.place} of step {json.loads((post / 'here').read_text())['step']}"
        time.sleep(0.01)
    raise AssertionError(f"{kill} was never reached\n{ranks.logs(started)}")


def check(place: Path, world_size: int, steps: int, count: int) -> None:
    one, two = (runs.last(place, run) for run in ("unharmed", "killed"))
    gap = runs.distance(runs.weights(one), runs.weights(two))
    assert gap <= (0.0 if world_size == 1 else 1e-6), f"the weights differ by {gap}"
    runs.check_samples(place, "killed", steps)
    runs.check_metrics(place, "killed", steps, count + 1)
    first, second = runs.losses(place, "unharmed"), runs.losses(place, "killed")
    worst = max(abs(first[step] - second[step]) for step in first)
    assert worst <= (0.0 if world_size == 1 else 1e-6), f"the losses differ by {worst}"
    (export,) = (runs.folder(place, "killed") / "export").glob("*.safetensors")
    assert (
        export.read_bytes() == (runs.folder(place, "unharmed") / "export" / export.name).read_bytes() or world_size > 1
    )
    print(
        f"largest difference of weights, optimizer and average {gap:g}, of losses {worst:g}; every sample once a pass"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        try:
            chaos(Path(folder), given.ranks, given.kills, given.seed)
        except AssertionError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
