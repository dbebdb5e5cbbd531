"""What happens when prompt and output are longer than the model's window. A new way subclasses `Overflow`."""

from abc import ABC, abstractmethod

from celeris.errors import CelerisError


class Overflow(ABC):
    """Decides whether a request may outgrow the window, and how much of its text stays when it does."""

    @abstractmethod
    def check(self, prompt: int, new: int, block: int, window: int) -> None:
        """Called before anything is computed.

        Args:
            prompt: tokens of the longest prompt.
            new: the most tokens that may follow.
            block: tokens of a canvas.
            window: tokens the model was trained to see at once.

        Raises:
            CelerisError: this request cannot be written.
        """

    def keep(self, block: int, window: int) -> int:
        """Tokens of a row's text that are read anew when the next block would not fit behind all of it."""
        return window - block


class Refuse(Overflow):
    """A request that may outgrow the window is an error."""

    def check(self, prompt: int, new: int, block: int, window: int) -> None:
        if prompt + new > window:
            raise CelerisError(
                f"A prompt of {prompt} tokens and max_new_tokens={new} exceed the model's window of {window}; shorten "
                f"the prompt or set max_new_tokens to at most {max(window - prompt, 0)} (decoder=diffusion goes beyond "
                "it with context_overflow=slide)."
            )


class Slide(Overflow):
    """The row goes on behind its last `keep` tokens, which are read again from position 0; what is older is forgotten.

    Inside the window nothing changes. Each slide is one more context pass of `keep` tokens, made about every
    (window − keep) tokens.

    Args:
        keep: tokens kept, at most the window less a block; None: half the window, or what a block leaves of it.
    """

    def __init__(self, keep: int | None = None) -> None:
        if keep is not None and keep < 1:
            raise CelerisError(f"keep is {keep}; a sliding context keeps at least 1 token (null: half the window).")
        self._keep = keep

    def check(self, prompt: int, new: int, block: int, window: int) -> None:
        if prompt + new <= window:
            return
        if block >= window:
            raise CelerisError(
                f"block_length is {block} and the window {window}, which leaves no context to slide; lower it."
            )
        if self._keep is not None and self._keep > window - block:
            raise CelerisError(
                f"keep is {self._keep}; with blocks of {block} in a window of {window} at most {window - block} fit."
            )

    def keep(self, block: int, window: int) -> int:
        return min(window // 2, window - block) if self._keep is None else self._keep
