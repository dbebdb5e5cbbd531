"""What sample.py shows while it writes and afterwards. One class a way; `show=` chooses (configs/show/)."""

from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from celeris.sampling import GenerateOutput, StepEnd
from celeris.tokenizer import TextTokenizer

OnStep = Callable[[StepEnd], None]


class Show(Protocol):
    """A display of one run of sample.py, which may write its rows in several batches."""

    def watch(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> OnStep | None:
        """Called before the rows `first` … of a batch are written; what it returns sees every denoising step."""
        ...

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        """Called with the batch's result; `total` rows are written in all."""
        ...


class ShowNothing:
    """No text, no bar."""

    def watch(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> OnStep | None:
        return None

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        pass


class ShowText:
    """A bar over the denoising steps (on stderr), then each text behind its prompt."""

    def watch(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> OnStep | None:
        columns = (TextColumn("block {task.fields[block]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        task = self._bar.add_task("steps", total=None, block=1)
        self._bar.start()

        def on_step(step: StepEnd) -> None:
            self._bar.update(task, total=step.steps, completed=step.step + 1, block=step.block + 1)

        return on_step

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        self._bar.stop()
        for row, (prompt, text) in enumerate(zip(out.prompts, out.texts, strict=True)):
            print(f"--- sample {first + row + 1} of {total}")
            print(prompt + text)


class ShowTrajectory:
    """The text of every row at every step: the most probable token of each position, as it comes out of the noise."""

    def watch(self, tokenizer: TextTokenizer, prompts: list[str], first: int) -> OnStep | None:
        def on_step(step: StepEnd) -> None:
            canvas = step.logits.argmax(-1).tolist()
            for row, tokens, written in zip(step.rows, canvas, step.sequences, strict=True):
                text = _one_line(prompts[row] + tokenizer.decode(written))
                now = _one_line(tokenizer.decode(tokens))
                print(f"{first + row + 1:>3} block {step.block + 1} t={step.t:.3f} {text}|{now}")

        return on_step

    def finish(self, out: GenerateOutput, first: int, total: int) -> None:
        for row, (prompt, text) in enumerate(zip(out.prompts, out.texts, strict=True)):
            print(f"{first + row + 1:>3} of {total} done: {_one_line(prompt + text)}")


def _one_line(text: str) -> str:
    return text.replace("\n", "⏎")
