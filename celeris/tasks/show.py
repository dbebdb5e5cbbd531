"""What sample.py shows while it writes and afterwards. One class a way; `show=` chooses (configs/show/)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from celeris.sampling import GenerateOutput, StepEnd
from celeris.tokenizer import TextTokenizer

OnStep = Callable[[StepEnd], None]


class Show(Protocol):
    """A display of one run of sample.py, which may write its rows in several batches.

    Attributes:
        needs_steps: whether it has anything to show of a decoder without denoising steps.
    """

    needs_steps: ClassVar[bool]

    def watching(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> AbstractContextManager[OnStep]:
        """Entered while the rows `first` … of a batch are written; what it gives sees every denoising step."""
        ...

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        """Called with the batch's result; `total` rows are written in all."""
        ...


class ShowNothing:
    """No text, no bar."""

    needs_steps: ClassVar[bool] = False

    @contextmanager
    def watching(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> Iterator[OnStep]:
        yield lambda step: None

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        pass


class ShowText:
    """A bar over the denoising steps (on stderr), then each text behind its prompt."""

    needs_steps: ClassVar[bool] = False

    @contextmanager
    def watching(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> Iterator[OnStep]:
        console = Console(stderr=True)
        columns = (TextColumn("block {task.fields[block]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("steps", total=None, block=1)

            def on_step(step: StepEnd) -> None:
                bar.update(task, total=step.steps, completed=step.step + 1, block=step.block + 1)

            yield on_step

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        for row, (prompt, text) in enumerate(zip(out.prompts, out.texts, strict=True)):
            print(f"--- sample {first + row + 1} of {total}")
            print(prompt + text)


class ShowTrajectory:
    """The text of every row at every step: the most probable token of each position, as it comes out of the noise."""

    needs_steps: ClassVar[bool] = True

    @contextmanager
    def watching(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> Iterator[OnStep]:
        def on_step(step: StepEnd) -> None:
            canvas = step.logits.argmax(-1).tolist()
            for row, tokens, written in zip(step.rows, canvas, step.sequences, strict=True):
                text = _one_line(prompts[row] + tokenizer.decode(written))
                now = _one_line(tokenizer.decode(tokens))
                print(f"{first + row + 1:>3} block {step.block + 1} t={step.t:.3f} {text}|{now}")

        yield on_step

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        for row, (prompt, text) in enumerate(zip(out.prompts, out.texts, strict=True)):
            print(f"{first + row + 1:>3} of {total} done: {_one_line(prompt + text)}")


def _one_line(text: str) -> str:
    return text.replace("\n", "⏎")
