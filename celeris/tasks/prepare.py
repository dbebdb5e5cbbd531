"""`python -m celeris.data.prepare experiment=base workers=16`: everything train.py would wait for, done beforehand.

Takes the command line of train.py and `workers=`. The same text, tokenizer, packing and length make the same folder of
the cache, so train.py then opens it. What an earlier start has finished is not done again.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from celeris.data.prepare import Work, peak_memory

if TYPE_CHECKING:
    from omegaconf import DictConfig

SECONDS_BETWEEN_LINES = 30.0  # in a log file


def prepare(config: "DictConfig") -> None:
    """Tokenize and pack the text that `config` (configs/prepare.yaml) describes."""
    from celeris.config.check import check_config
    from celeris.config.plugins import load_plugins
    from celeris.config.schema import PrepareConfig
    from celeris.errors import CelerisError
    from celeris.tasks.fine_tune import checkpoint_model
    from celeris.tasks.text import make_paths_absolute, unpacked

    load_plugins(config)
    check_config(config, PrepareConfig)
    if config.workers < 0:
        raise CelerisError(f"workers={config.workers} must be a number of processes, at least 0.")
    make_paths_absolute(config.data)
    start = time.monotonic()
    data = unpacked(config.data, None if config.init_from is None else checkpoint_model(config).tokenizer)
    with shown() as work:
        data.prepare(config.workers, work)
    print(summary(work, time.monotonic() - start, config.workers))
    print(f"prepared: {data.fingerprint} in {config.paths.cache_dir}")


def summary(work: Work, seconds: float, workers: int) -> str:
    """What was done and what it took."""
    parent, worker = peak_memory() / 1e6, work.peak_worker / 1e6
    helpers = f", largest of {workers} workers {worker:,.0f} MB" if work.peak_worker else ""
    return (
        f"tokenized {work.tokens:,} tokens of {work.documents:,} documents now ({work.shards_made:,} shards; "
        f"{work.shards_kept:,} were there): {work.bytes_utf8 / 1e6:,.1f} MB in {seconds:,.1f} s, "
        f"{work.bytes_utf8 / 1e6 / seconds:,.2f} MB/s; peak memory {parent:,.0f} MB{helpers}"
    )


@contextmanager
def shown() -> Iterator[Work]:
    """Work whose progress is shown: a bar on a terminal, a line now and then in a log."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    work, start, said = Work(), time.monotonic(), [time.monotonic()]

    def line() -> str:
        rate = work.bytes_utf8 / 1e6 / max(time.monotonic() - start, 1e-9)
        return (
            f"{work.shards_kept + work.shards_made:,} shards, {work.documents:,} documents, {work.tokens:,} tokens, "
            f"{rate:,.1f} MB/s"
        )

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("packing"), BarColumn(), TextColumn("{task.fields[line]}"), TimeElapsedColumn(), console=console
    )
    task = bar.add_task("", total=None, line="")

    def watch(_: Work) -> None:
        if console.is_terminal:
            bar.update(task, line=line())
        elif time.monotonic() - said[0] >= SECONDS_BETWEEN_LINES:
            said[0] = time.monotonic()
            print(f"packing: {line()}", file=sys.stderr, flush=True)

    work.watch = watch
    with bar if console.is_terminal else nullcontext():
        yield work


if __name__ == "__main__":
    from celeris.tasks.cli import main

    sys.exit(main(prepare))
