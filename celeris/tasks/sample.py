"""The body of sample.py: prompts in, texts out, every text with what it takes to write it again."""

import json
import os
import time
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from celeris import __version__
from celeris.config.check import check_config, check_hydra
from celeris.config.plugins import load_plugins
from celeris.config.schema import SampleConfig
from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.model import DiffusionLM
from celeris.sampling import Blank, GenerateOutput, parse_template
from celeris.sampling.infill import ways
from celeris.sampling.request import prepare, tokenizer_of
from celeris.sampling.template import BlankLength
from celeris.tasks.exports import check_decoder, choose_device, find_export, load_model
from celeris.tasks.prompts import Entry, WithBlanks, read_entries
from celeris.tasks.records import record, summarise
from celeris.tasks.show import Show


def sample(config: DictConfig) -> None:
    """Continue the prompts, or fill in the blanks, that `config` (configs/sample.yaml) names."""
    load_plugins(config)
    check_config(config, SampleConfig)
    check_hydra(HydraConfig.get())
    if config.batch_size < 1 or config.num_samples < 1:
        raise CelerisError(f"num_samples={config.num_samples} and batch_size={config.batch_size} must be at least 1.")
    blank_length = _plain(config.blank_length)
    entries = read_entries(config.prompt, config.prompt_file, config.infill, config.suffix, blank_length)
    output = _writable(config.output)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    folder = find_export(config.checkpoint, Path(config.paths.runs_dir))
    model = load_model(folder, choose_device(config.device))
    if isinstance(entries[0], WithBlanks):
        check_decoder("diffusion", model)  # which fills blanks in, too
    else:
        check_decoder(str(HydraConfig.get().runtime.choices.get("decoder")), model)
    print("It continues text; it does not follow instructions.")
    asked = entries if not isinstance(entries[0], WithBlanks) else _templates(entries, config.blank, blank_length)
    decoder = instantiate(config.infilling if isinstance(entries[0], WithBlanks) else config.decoder, _convert_="all")
    shown = _check(model, decoder, asked, isinstance(entries[0], WithBlanks), config)  # before the first is written
    _count_unknown(model, asked)

    rows = [n for n in range(len(entries)) for _ in range(config.num_samples)]
    metadata = describe(config, folder, model, isinstance(entries[0], WithBlanks))
    began = time.perf_counter()
    show, records = instantiate(config.show), []
    for first in range(0, len(rows), config.batch_size):
        batch = rows[first : first + config.batch_size]
        texts = [shown[n] for n in batch]
        out = _run(decoder, model, [asked[n] for n in batch], texts, config.seed + first, show, first)
        show.finish(out, first, len(rows))
        records += [
            {**record(out, k, config.seed + first + k, first + k), **_given(entries[n])} for k, n in enumerate(batch)
        ]
    seconds = time.perf_counter() - began
    if output is not None:
        _save(output, [{**record, "metadata": metadata} for record in records])
    summarise(records, seconds, output)


def describe(config: DictConfig, folder: Path, model: LanguageModel, infilling: bool = False) -> dict[str, Any]:
    """What makes a text repeatable: the checkpoint, the decoder with all its settings, precision and seed."""
    parameter = next(model.parameters())
    decoder = OmegaConf.to_container(config.infilling if infilling else config.decoder, resolve=True)
    assert isinstance(decoder, dict)
    return {
        "celeris": __version__,
        "checkpoint": str(folder),
        "step": model.info.get("step"),
        "parameters": model.num_parameters,
        "weight_hash": model.weight_hash,
        "decoder": {key: value for key, value in decoder.items() if key != "_partial_"},
        "num_samples": config.num_samples,
        "seed": config.seed,
        "precision": str(parameter.dtype).removeprefix("torch."),
        "device": parameter.device.type,
    }


def _given(entry: Entry) -> dict[str, Any]:
    """What a record says of an entry that is no text; the text of it stands under "prompt"."""
    if isinstance(entry, str | WithBlanks):
        return {}
    return {"messages" if entry and isinstance(entry[0], dict) else "ids": entry}


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _templates(entries: Sequence[Entry], blank: str, lengths: BlankLength) -> list[list[str | Blank]]:
    found = [entry.template for entry in entries if isinstance(entry, WithBlanks)]
    return [parse_template(item, lengths, blank) if isinstance(item, str) else item for item in found]


def _check(model: LanguageModel, decoder: Any, asked: Sequence[Any], infilling: bool, config: DictConfig) -> list[str]:
    """The text of each prompt ("" for a template, whose beginning every step shows), all of them checked."""
    takes = signature(decoder).parameters
    for key, default in (("stop", []), ("min_new_tokens", 0), ("adaptive", None)):
        if config[key] != default and key not in takes:
            what = "Filling blanks in" if infilling else "This decoder"
            raise CelerisError(f"{what} takes no {key}=; leave it out, or write with decoder=diffusion.")
    if infilling:
        if not isinstance(model, DiffusionLM):
            raise CelerisError(
                f"A {type(model).__name__} fills no blanks in; give the checkpoint of a diffusion model."
            )
        for template in asked:
            ways(model, template)
        return [""] * len(asked)
    block = config.block_length or getattr(model, "block_length", 1)
    overflow = getattr(decoder, "keywords", {}).get("context_overflow")
    return prepare(model, asked, 1, config.max_new_tokens, config.seed, overflow, block).prompts


def _run(
    decoder: Callable[..., GenerateOutput],
    model: LanguageModel,
    batch: Sequence[Any],
    texts: list[str],
    seed: int,
    show: Show,
    first: int,
) -> GenerateOutput:
    takes = signature(decoder).parameters
    if show.needs_steps and "callback_on_step_end" not in takes:
        raise CelerisError("This decoder has no denoising steps to show; use show=text.")
    if show.needs_pieces and "callback_on_piece" not in takes:
        raise CelerisError("This decoder hands out no pieces of text; use show=text.")
    with show.watching(tokenizer_of(model), texts, first) as watching:
        told: dict[str, Any] = {"callback_on_step_end": watching.step}
        if show.needs_pieces:  # token by token they cost time
            told["callback_on_piece"] = watching.piece
        return decoder(model, batch, seed=seed, **{name: value for name, value in told.items() if name in takes})


def _count_unknown(model: LanguageModel, asked: Sequence[Any]) -> None:
    tokenizer = model.tokenizer
    if tokenizer is None or tokenizer.unk_id is None:
        return
    texts = [item for entry in asked for item in ([entry] if isinstance(entry, str) else entry)]
    prompts = [item for item in texts if isinstance(item, str)]
    unknown = sum(ids.count(tokenizer.unk_id) for ids in tokenizer.encode_batch(prompts))
    if unknown:
        print(f"warning: {unknown} characters of the prompts are unknown to this model's tokenizer.")


def _writable(output: str | None) -> Path | None:
    """`output` as a path whose folder exists, so that a mistake there ends before any text is written."""
    if output is None:
        return None
    path = Path(output).expanduser().absolute()
    if path.is_dir():
        raise CelerisError(f"output={output} is a folder; name a .jsonl file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CelerisError(f"output={output} cannot be written ({error.strerror}).") from error
    return path


def _save(path: Path, records: list[dict[str, Any]]) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    os.replace(part, path)
