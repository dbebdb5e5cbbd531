"""What sample.py shows while it writes and afterwards. One class a way; `show=` chooses (configs/show/)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from celeris.sampling import GenerateOutput, Piece, StepEnd
from celeris.tokenizer import TextTokenizer


class Watching(NamedTuple):
    """What is told while a batch is written: every denoising step, every piece of committed text."""

    step: Callable[[StepEnd], None] = lambda step: None
    piece: Callable[[Piece], None] = lambda piece: None


class Show(Protocol):
    """A display of one run of sample.py, which may write its rows in several batches.

    Attributes:
        needs_steps: it has nothing to show of a decoder without denoising steps.
        needs_pieces: it has nothing to show of a decoder that does not hand out pieces.
    """

    needs_steps: ClassVar[bool]
    needs_pieces: ClassVar[bool]

    def watching(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> AbstractContextManager[Watching]:
        """Entered while the rows `first` … of a batch are written; what it gives is told how it goes."""
        ...

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        """Called with the batch's result; `total` rows are written in all."""
        ...


class ShowNothing:
    """No text, no bar."""

    needs_steps: ClassVar[bool] = False
    needs_pieces: ClassVar[bool] = False

    @contextmanager
    def watching(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> Iterator[Watching]:
        yield Watching()

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        pass


class ShowText:
    """A bar over the denoising steps (on stderr), then each text behind its prompt."""

    needs_steps: ClassVar[bool] = False
    needs_pieces: ClassVar[bool] = False

    @contextmanager
    def watching(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> Iterator[Watching]:
        console = Console(stderr=True)
        columns = (TextColumn("block {task.fields[block]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("steps", total=None, block=1)

            def on_step(step: StepEnd) -> None:
                bar.update(task, total=step.steps, completed=step.step + 1, block=step.block + 1)

            yield Watching(step=on_step)

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        for row, text in enumerate(out.whole_texts):
            print(f"--- sample {first + row + 1} of {total}")
            print(text)


class ShowTrajectory:
    """The text of every row at every step: the most probable token of each position, as it comes out of the noise."""

    needs_steps: ClassVar[bool] = True
    needs_pieces: ClassVar[bool] = False

    @contextmanager
    def watching(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> Iterator[Watching]:
        def on_step(step: StepEnd) -> None:
            canvas = step.logits.argmax(-1).tolist()
            for row, tokens, written in zip(step.rows, canvas, step.sequences, strict=True):
                text = _one_line(prompts[row] + tokenizer.decode(written))
                now = _one_line(tokenizer.decode(tokens))
                print(f"{first + row + 1:>3} block {step.block + 1} t={step.t:.3f} {text}|{now}")

        yield Watching(step=on_step)

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        for row, text in enumerate(out.whole_texts):
            print(f"{first + row + 1:>3} of {total} done: {_one_line(text)}")


class ShowStream:
    """Text as it is committed: of one row as it is, of several rows a line a piece."""

    needs_steps: ClassVar[bool] = False
    needs_pieces: ClassVar[bool] = True

    @contextmanager
    def watching(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> Iterator[Watching]:
        def on_piece(piece: Piece) -> None:
            if len(prompts) == 1:
                print(piece.text, end="", flush=True)
            elif piece.text:
                print(f"{first + piece.row + 1:>3} block {piece.block + 1} {_one_line(piece.text)}", flush=True)

        if len(prompts) == 1:
            print(f"--- sample {first + 1}\n{prompts[0]}", end="", flush=True)
        yield Watching(piece=on_piece)

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        if len(out.texts) == 1:
            print()
        for row, reason in enumerate(out.finish_reasons):
            print(f"{first + row + 1:>3} of {total} done: {reason}, {len(out.sequences[row])} tokens")


def _one_line(text: str) -> str:
    return text.replace("\n", "⏎")
