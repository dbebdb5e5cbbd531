"""Reports made by hand, so that what a comparison says of them can be worked out on paper."""

from typing import Any

from celeris.evaluation.comparison.groups import Entry

SCORING = {"scorer": "s", "window": 256, "stride": 256, "tokenizer": "t", "length": 32, "num_samples": 4}
DATA = {"source": "prose", "source_fingerprint": "x", "tokenizer_fingerprint": "y", "packing": "p", "eos_policy": "e"}
MADE = {"date": "2026-01-02", "command": ["evaluate.py", "compare=[a, b]"], "git": {"commit": "c0ffee", "changed": []}}


def setting(
    key: str, known: float, *, bits: float = 2.0, flags: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    system, _, rest = key.partition("/")
    return {
        "key": key,
        "label": f"{system}, {rest}",
        "system": system,
        "length": 32,
        "num_samples": 4,
        "seed": 7,
        "temperature": 1.0,
        "known_word_share": known,
        "scorer_bits_per_character": bits,
        "gen_ppl": 10 * bits,
        "entropy": 2.5 + known / 10,
        "mauve": None,
        "flags": flags or [],
        "texts": ["a text"],
        **more,
    }


def timed(key: str, rate: float, weights: str, batch: int = 1, sd: float | None = 1.0) -> dict[str, Any]:
    return {
        "key": key,
        "label": key.replace("/", ", "),
        "weight_hash": weights,
        "batch": batch,
        "prompt_length": 0,
        "length": 32,
        "output_tokens_per_second": rate,
        "output_tokens_per_second_sd": sd,
        "seconds": [1.0, 1.0],
    }


def entry(
    system: str,
    seed: int,
    bits: float,
    settings: list[dict[str, Any]],
    *,
    kind: str = "upper bound",
    scoring: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    rows: int = 8,
    speed: list[dict[str, Any]] | None = None,
    settings_of_training: dict[str, Any] | None = None,
    experiment: str | None = None,
) -> Entry:
    """The report of a run called runs/<system>/<seed>, whose weights are "<system><seed>"."""
    name = "exact" if kind == "exact" else "bound"
    result = {
        "nats_per_token": bits * 0.7,
        "bits_per_character": bits,
        "perplexity": 2.0**bits,
        "tokens": 256,
        "standard_error_bits_per_character": 0.02,
        "kind": kind,
        "definition": f"how {name} is measured",
    }
    metrics: dict[str, Any] = {
        "likelihood": {
            "headline": name,
            "results": {name: result},
            "rows": rows,
            "rows_held_out": 20,
            "row_length": 32,
            "definitions": {"unit": "tokens"},
        },
        "quality": {
            "definitions": {"entropy": "nats"},
            "scoring": SCORING if scoring is None else scoring,
            "real_text": setting("real/text", 0.99, bits=1.2),
            "settings": settings,
        },
    }
    if speed is not None:
        metrics["speed"] = {"definition": {"tokens/s": "tokens a second"}, "settings": speed}
    about = {"system": system, "weight_hash": f"{system}{seed}", "step": 100, "trained_with_seed": seed,
             "parameters": 1000, "precision": "float32", "device": "cpu", "seed": 7}  # fmt: skip
    report = {
        "checkpoint": about,
        "data": DATA if data is None else data,
        "environment": {"torch": "2"},
        "warnings": [],
        "flags": [],
        "unavailable": [],
        "reused": [],
        "metrics": metrics,
    }
    training = {
        "settings": settings_of_training or {"system": system},
        "experiment": experiment or f"compare/{system}_tiny",
        "command": ["train.py", f"experiment=compare/{system}_tiny", f"seed={seed}"],
        "tokens": 4096,
        "cpu": "a CPU",
        "commit": "deadbeef",
    }
    return Entry(f"runs/{system}/{seed}", report, training)


def three_systems() -> tuple[list[Entry], dict[str, Any]]:
    """Two seeds of celeris, two of llama, one of mdlm, and one speed run over the three."""
    entries = [
        entry("celeris", 1, 1.8, [setting("celeris/steps_4/t1", 0.80), setting("celeris/steps_16/t1", 0.90)]),
        entry("celeris", 2, 2.0, [setting("celeris/steps_4/t1", 0.84), setting("celeris/steps_16/t1", 0.94)]),
        entry("llama", 1, 1.5, [setting("llama/t1", 0.95)], kind="exact"),
        entry("llama", 2, 1.6, [setting("llama/t1", 0.97)], kind="exact"),
        entry("mdlm", 1, 1.9, [setting("mdlm/steps_64/t1", 0.5, flags=["LOW-ENTROPY at …"]),
                               setting("mdlm/steps_256/t1", 0.7)]),
    ]  # fmt: skip
    rates = {"celeris/steps_4/t1": 400.0, "celeris/steps_16/t1": 120.0, "llama/t1": 200.0, "mdlm/steps_64/t1": 900.0,
             "mdlm/steps_256/t1": 50.0}  # fmt: skip
    speed = {
        "definition": {"tokens/s": "tokens a second"},
        "environment": {"threads": 1},
        "settings": [
            timed(key, rate * batch**0.5, key.split("/")[0] + "1", batch)
            for key, rate in rates.items()
            for batch in (1, 16)
        ],
    }
    return entries, speed
