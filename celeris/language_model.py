"""What training, sampling and evaluation ask of any language model: its vocabulary, its parts, and its files."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from celeris import __version__
from celeris.build import build
from celeris.errors import CelerisError
from celeris.tokenizer import TextTokenizer

Model = TypeVar("Model", bound="LanguageModel")


def passes(layer: nn.Module) -> tuple[str, ...]:
    """Names of the methods that run a layer; what wraps a layer (sharding, recomputation) wraps these."""
    found: tuple[str, ...] = getattr(type(layer), "passes", ("forward",))
    return found


class LanguageModel(nn.Module, ABC):
    """A language model over rows of at most `max_length` tokens.

    Args:
        vocab_size: V.
        max_length: the window in tokens.
        pad_id, eos_id, unk_id: special tokens; PAD and UNK are never produced.
        role_ids: tokens that begin the messages of a conversation; never produced either.
    """

    system: ClassVar[str] = "model"
    """What reports call this kind of model."""

    decoders: ClassVar[tuple[str, ...]] = ()
    """Names (configs/decoder) of what can write with this kind of model."""

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        pad_id: int = 0,
        eos_id: int = 1,
        unk_id: int | None = None,
        role_ids: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.vocab_size, self.max_length = vocab_size, max_length
        self.pad_id, self.eos_id, self.unk_id = pad_id, eos_id, unk_id
        self.role_ids = list(role_ids)
        self.tokenizer: TextTokenizer | None = None
        self.spec: dict[str, Any] = {}
        self.info: dict[str, Any] = {}

    @classmethod
    def from_spec(cls: type[Model], spec: dict[str, Any]) -> Model:
        """Build from a plain `_target_` record, which the model remembers for `save_pretrained`.

        Raises:
            CelerisError: the record describes another kind of model.
        """
        model = build(spec)
        if not isinstance(model, cls):
            raise CelerisError(f"This is a {type(model).__name__}, not a {cls.__name__}; load it as what it is.")
        model.spec = spec
        return model

    # -- parts, as the optimizer sees them ------------------------------------------------------------------------

    @property
    @abstractmethod
    def trunk(self) -> nn.Module:
        """The layers whose matrices do the work."""

    @property
    def layers(self) -> list[nn.Module]:
        """The trunk's repeated layers, in order: what is gathered, or computed again in backward, one by one."""
        return [layer for part in self.trunk.children() if isinstance(part, nn.ModuleList) for layer in part]

    def table_parameters(self) -> list[nn.Parameter]:
        """What embeds tokens."""
        return []

    def schedule_parameters(self) -> list[nn.Parameter]:
        """The fit of a noise schedule: a handful of numbers with their own loss."""
        return []

    def set_unigram(self, counts: Tensor) -> None:
        """Told how often each token occurs in the training rows, (V,) int64, before training."""

    @property
    def forbidden(self) -> list[int]:
        """Tokens that are never produced."""
        return [self.pad_id, *([] if self.unk_id is None else [self.unk_id]), *self.role_ids]

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())

    @property
    def weight_hash(self) -> str:
        """First 12 hex digits of the sha256 over names and bytes of the weights."""
        digest = hashlib.sha256()
        for name, value in sorted(self.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:12]

    # -- files ----------------------------------------------------------------------------------------------------

    def save_pretrained(self, folder: str | Path, info: dict[str, Any] | None = None) -> Path:
        """Write model.safetensors, config.json and tokenizer.json into `folder`.

        Args:
            info: what else a reader of the checkpoint must know (step, data, packing, seed …), plain JSON values.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {k: v.detach().contiguous().cpu() for k, v in self.state_dict().items()}, folder / "model.safetensors"
        )
        info = {**(info or self.info), "parameters": self.num_parameters, "weight_hash": self.weight_hash}
        record = {"celeris_version": __version__, "model": self.spec, "info": info}
        (folder / "config.json").write_text(json.dumps(record, indent=2) + "\n")
        if self.tokenizer is not None:
            self.tokenizer.save(folder)
        return folder

    @classmethod
    def from_pretrained(cls: type[Model], folder: str | Path, device: torch.device | str = "cpu") -> Model:
        """Load an export in eval mode, tokenizer attached.

        Raises:
            CelerisError: the folder or a file of it is missing or unreadable, the weights do not fit the config, or
                it holds another kind of model.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise CelerisError(f"No checkpoint folder at '{folder}'; give the export/ folder of a run.")
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            if not (folder / name).is_file():
                raise CelerisError(f"'{folder}' has no {name}; give the export/ folder of a finished run.")
        try:
            record = json.loads((folder / "config.json").read_text())
            spec, info = record["model"], record["info"]
        except (ValueError, KeyError) as error:
            raise CelerisError(
                f"'{folder / 'config.json'}' is not a readable export ({error!r}); export it again."
            ) from error
        try:
            weights = load_file(folder / "model.safetensors")
        except (SafetensorError, OSError) as error:
            raise CelerisError(f"'{folder / 'model.safetensors'}' is corrupted ({error}); export it again.") from error
        model = cls.from_spec(spec)
        missing, unexpected = model.state_dict().keys() - weights.keys(), weights.keys() - model.state_dict().keys()
        if missing or unexpected:
            raise CelerisError(
                f"The weights in '{folder}' do not fit its config: missing {sorted(missing)[:3]}, "
                f"unexpected {sorted(unexpected)[:3]}; export the run again."
            )
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise CelerisError(f"The weights in '{folder}' do not fit its config: {error}.") from error
        model.info = info
        model.tokenizer = TextTokenizer.load(folder)
        return model.to(device).eval()
