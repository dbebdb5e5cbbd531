"""A corpus of a few words, and one small run of train.py that the tests of this folder share."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from celeris.config.overrides import quoted
from celeris.tasks.cli import main
from celeris.tasks.evaluate import evaluate
from celeris.tasks.sample import sample
from celeris.tasks.train import train

TASKS = {"train": train, "sample": sample, "evaluate": evaluate}
WORDS = ("the", "of", "people", "government", "citizens", "peace", "country", "congress", "nation", "law", "war")


class Result(NamedTuple):
    """What a command ended with and printed."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one line of a mistake."""
        lines = self.err.strip().splitlines()
        assert self.code == 2 and len(lines) == 1 and lines[0].startswith("error: "), self
        assert "Traceback" not in self.out
        return lines[0]


class Workplace(NamedTuple):
    """Folders of a finished run, and the overrides that keep every command inside them."""

    corpus: Path
    runs: Path
    cache: Path

    @property
    def words(self) -> list[str]:
        return [f"paths.runs_dir={quoted(str(self.runs))}", f"paths.cache_dir={quoted(str(self.cache))}"]

    @property
    def training(self) -> list[str]:
        return ["experiment=debug", "data=local_text", f"path={quoted(str(self.corpus))}", *self.words]

    @property
    def run(self) -> Path:
        return self.runs / "debug" / "first"


Command = Callable[..., Result]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a root script's main function in this process."""
    monkeypatch.delenv("CELERIS_RUN_ID", raising=False)

    def run(task: str, *words: str) -> Result:
        capfd.readouterr()
        code = main(TASKS[task], list(words))
        monkeypatch.delenv("CELERIS_RUN_ID", raising=False)
        return Result(code, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A trained `experiment=debug` on a tiny corpus: runs/debug/first."""
    folder = tmp_path_factory.mktemp("files") / "a place, é=1"  # a name that must survive every command line
    folder.mkdir()
    generator = random.Random(0)
    corpus = folder / "corpus.txt"
    corpus.write_text("\n\n".join(" ".join(generator.choices(WORDS, k=30)) + "." for _ in range(80)), encoding="utf-8")
    place = Workplace(corpus, folder / "runs", folder / "cache")
    assert main(train, [*place.training, "run_id=first"]) == 0
    return place
