"""Find the export that a command line means, and load it."""

from glob import glob
from pathlib import Path

import torch

from celeris.config.resolvers import ROOT
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel


def find_export(checkpoint: str | None, runs: Path) -> Path:
    """The folder that holds `model.safetensors`.

    Args:
        checkpoint: an export folder, a run folder (its `export/` is taken), or a pattern that one of them matches;
            relative paths are looked up in the working directory, then beside the root scripts. None takes the
            newest export under `runs`.

    Raises:
        CelerisError: nothing there, or several matches.
    """
    if checkpoint is None:
        weights = [path for depth in ("*/*", "*/*/*") for path in runs.glob(f"{depth}/export/model.safetensors")]
        found = sorted(weights, key=lambda path: path.stat().st_mtime)
        if not found:
            raise CelerisError(f"There is no export under {runs} yet; run `python train.py` first or give checkpoint=.")
        return found[-1].parent
    path = existing_path(checkpoint, "checkpoint")
    return path / "export" if (path / "export").is_dir() else path


def existing_path(text: str, key: str) -> Path:
    """The one file or folder that `text` names.

    Raises:
        CelerisError: nothing there, or a pattern with several matches.
    """
    for base in (Path.cwd(), ROOT):
        path = base / Path(text).expanduser()
        if path.exists():
            return path
        matches = sorted(glob(str(path)))
        if len(matches) > 1:
            raise CelerisError(f"{key}={text} matches {len(matches)} paths ({matches[0]}, {matches[1]}, …); name one.")
        if matches:
            return Path(matches[0])
    raise CelerisError(f"{key}={text} does not exist; check the path.")


def choose_device(name: str) -> str:
    """The device that `name` means: "auto" is a GPU where there is one.

    Raises:
        CelerisError: there is no such device.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise CelerisError(f"device={name} is not there ({str(error).splitlines()[0]}); use device=auto.") from error
    return name


def load_model(folder: Path, device: str) -> LanguageModel:
    """The model of an export on `device`, in evaluation mode, after one line that says what was loaded."""
    model = LanguageModel.from_pretrained(folder, device=device)
    step = model.info.get("step", "unknown")
    print(f"checkpoint {folder}: step {step}, {model.num_parameters:,} parameters, weights {model.weight_hash}")
    return model


def check_decoder(name: str, model: LanguageModel) -> None:
    """Refuse a shipped decoder of another kind of model; one of the user's own is the user's own affair.

    Args:
        name: of the file in configs/decoder.

    Raises:
        CelerisError: names what fits.
    """
    shipped = {path.stem for path in (ROOT / "configs" / "decoder").glob("*.yaml")}
    if name in shipped and model.decoders and name not in model.decoders:
        fitting = " or ".join(f"decoder={own}" for own in model.decoders)
        raise CelerisError(f"decoder={name} cannot write with this {model.system} checkpoint; use {fitting}.")
