"""The model and the one decoder that another package drives."""

from pathlib import Path

from celeris.errors import CelerisError
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.record import Decoder
from celeris.language_model import LanguageModel


def loaded_model(pretrained: LanguageModel | str | Path, device: str | None) -> LanguageModel:
    """A model with its tokenizer, in evaluation mode.

    Raises:
        CelerisError: no such folder, or no tokenizer.
    """
    if isinstance(pretrained, str | Path):
        folder = Path(pretrained).expanduser()
        export = folder / "export"
        return LanguageModel.from_pretrained(export if export.is_dir() else folder, device=device or "cpu")
    if pretrained.tokenizer is None:
        raise CelerisError("The model has no tokenizer; load it with LanguageModel.from_pretrained.")
    return pretrained.eval()


def only_decoder(model: LanguageModel, steps: int, temperature: float, next_token: bool) -> Decoder:
    """The one decoder that these choices leave.

    Raises:
        CelerisError: the model has no next-token head.
    """
    choices = Choices((steps,), (steps,), (float(temperature),), (float(temperature),))
    found = [decoder for decoder in decoders(model, choices) if ("/next_token/" in decoder.key) == next_token]
    if not found:
        raise CelerisError(f"This {model.system} model has no next-token head; leave next_token out.")
    return found[0]
