"""The body of sample.py: prompts in, texts out, every text with what it takes to write it again."""

import json
import os
import time
from collections.abc import Callable
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
from celeris.config.resolvers import ROOT
from celeris.config.schema import SampleConfig
from celeris.errors import CelerisError
from celeris.evaluation.text_metrics import distinct, longest_run
from celeris.language_model import LanguageModel
from celeris.sampling import GenerateOutput
from celeris.sampling.request import prepare
from celeris.tasks.exports import choose_device, find_export, load_model
from celeris.tasks.prompts import read_prompts
from celeris.tasks.show import Show

LONG_RUN = 16  # more equal tokens in a row than this is no text


def sample(config: DictConfig) -> None:
    """Continue the prompts that `config` (configs/sample.yaml) names."""
    load_plugins(config)
    check_config(config, SampleConfig)
    check_hydra(HydraConfig.get())
    if config.batch_size < 1 or config.num_samples < 1:
        raise CelerisError(f"num_samples={config.num_samples} and batch_size={config.batch_size} must be at least 1.")
    prompts = read_prompts(config.prompt, config.prompt_file)
    output = _writable(config.output)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    folder = find_export(config.checkpoint, Path(config.paths.runs_dir))
    model = load_model(folder, choose_device(config.device))
    check_decoder(str(HydraConfig.get().runtime.choices.get("decoder")), model)
    print("It continues text; it does not follow instructions.")
    rows = [prompt for prompt in prompts for _ in range(config.num_samples)]
    prepare(model, rows, 1, config.max_new_tokens, config.seed)  # all prompts are checked before the first is written
    _count_unknown(model, prompts)

    metadata = describe(config, folder, model)
    began = time.perf_counter()
    records = write(config, model, rows, instantiate(config.show))
    seconds = time.perf_counter() - began
    if output is not None:
        _save(output, [{**record, "metadata": metadata} for record in records])
    _summarise(records, seconds, output)


def check_decoder(name: str, model: LanguageModel) -> None:
    """Refuse a shipped decoder of another kind of model; one of the user's own is the user's own affair.

    Raises:
        CelerisError: names what fits.
    """
    shipped = {path.stem for path in (ROOT / "configs" / "decoder").glob("*.yaml")}
    if name in shipped and model.decoders and name not in model.decoders:
        fitting = " or ".join(f"decoder={own}" for own in model.decoders)
        raise CelerisError(f"decoder={name} cannot write with this {model.system} checkpoint; use {fitting}.")


def write(config: DictConfig, model: LanguageModel, rows: list[str], show: Show) -> list[dict[str, Any]]:
    """One record a row, written in batches; row k draws what row 0 of a run with seed + k draws."""
    decoder = instantiate(config.decoder)
    records: list[dict[str, Any]] = []
    for first in range(0, len(rows), config.batch_size):
        batch = rows[first : first + config.batch_size]
        out = _run(decoder, model, batch, config.seed + first, show, first)
        show.finish(out, first, len(rows))
        records += [_record(out, row, config.seed + first + row, first + row) for row in range(len(batch))]
    return records


def describe(config: DictConfig, folder: Path, model: LanguageModel) -> dict[str, Any]:
    """What makes a text repeatable: the checkpoint, the decoder with all its settings, precision and seed."""
    parameter = next(model.parameters())
    decoder = OmegaConf.to_container(config.decoder, resolve=True)
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


def _run(
    decoder: Callable[..., GenerateOutput], model: LanguageModel, batch: list[str], seed: int, show: Show, first: int
) -> GenerateOutput:
    assert model.tokenizer is not None
    if "callback_on_step_end" not in signature(decoder).parameters:
        if show.needs_steps:
            raise CelerisError("This decoder has no denoising steps to show; use show=text.")
        return decoder(model, batch, seed=seed)
    with show.watching(model.tokenizer, batch, first) as on_step:
        return decoder(model, batch, seed=seed, callback_on_step_end=on_step)


def _record(out: GenerateOutput, row: int, seed: int, index: int) -> dict[str, Any]:
    tokens = out.sequences[row]
    return {
        "index": index,
        "prompt": out.prompts[row],
        "text": out.texts[row],
        "finish_reason": out.finish_reasons[row],
        "tokens": len(tokens),
        "nfe": out.nfe[row],
        "seed": seed,
        "distinct_2": distinct([out.texts[row]], 2),
        "longest_run": longest_run(tokens),
    }


def _count_unknown(model: LanguageModel, prompts: list[str]) -> None:
    tokenizer = model.tokenizer
    if tokenizer is None or tokenizer.unk_id is None:
        return
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


def _summarise(records: list[dict[str, Any]], seconds: float, output: Path | None) -> None:
    tokens = sum(record["tokens"] for record in records)
    print(f"{len(records)} samples, {tokens} tokens in {seconds:.1f} s ({tokens / max(seconds, 1e-9):,.0f} tokens/s)")
    runs = [record["index"] + 1 for record in records if record["longest_run"] > LONG_RUN]
    if runs:
        print(
            f"LONG-RUN: more than {LONG_RUN} equal tokens in a row in {len(runs)} samples, first in number {runs[0]}."
        )
    if output is not None:
        print(f"written to {output}")
