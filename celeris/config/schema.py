"""Root keys of the three tasks. A key that is not here, or a value of another type, is refused by `check_config`."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TrainConfig:
    """Keys of configs/train.yaml; what each means is said there."""

    seed: int
    plugins: Any
    length: int
    block_length: int
    global_batch_size: int
    micro_batch_size: int | None
    estimate: bool
    threads: int | None
    run_id: str | None
    ckpt: str | None
    init_from: str | None
    path: Any
    name: str | None
    paths: Any
    vocabulary: Any
    tokenizer: Any
    layout: Any
    data: Any
    schedule: Any
    levels: Any
    embedding: Any
    embedding_table: Any
    model: Any
    token_input: Any
    head: Any
    objective: Any
    optimizer: Any
    adapter: Any
    module: Any
    datamodule: Any
    trainer: Any
    hardware: Any
    callbacks: Any = field(metadata={"parts": "callback"})
    logger: Any = field(metadata={"parts": "logger"})


@dataclass
class PrepareConfig(TrainConfig):
    """Keys of configs/prepare.yaml."""

    workers: int


@dataclass
class SampleConfig:
    """Keys of configs/sample.yaml."""

    checkpoint: str | None
    plugins: Any
    prompt: str | None
    prompt_file: str | None
    infill: str | None
    suffix: str | None
    blank: str
    blank_length: Any
    output: str | None
    num_samples: int
    max_new_tokens: int
    min_new_tokens: int
    stop: Any
    num_inference_steps: int | None
    block_length: int | None
    temperature: float
    eta: float
    guidance_scale: float
    self_cond_guidance: float
    top_p: float
    clamp_below: float | None
    stagger: float | None
    seed: int
    batch_size: int
    device: str
    threads: int | None
    paths: Any
    solver: Any
    grid: Any
    decoder: Any
    infilling: Any
    adaptive: Any
    context_overflow: Any
    show: Any


@dataclass
class EvaluateConfig:
    """Keys of configs/evaluate.yaml."""

    checkpoint: str | None
    plugins: Any
    metrics: Any
    compare: Any
    allow_other_scoring: bool
    texts: str | None
    history: str | None
    watch: str | None
    fresh: bool
    output: str | None
    seed: int
    allow_other_data: bool
    device: str
    threads: int | None
    path: Any
    name: str | None
    length: int | None
    tokenizer: Any
    layout: Any
    paths: Any
    data: Any
    evaluation: Any = field(metadata={"parts": "metric"})
    logger: Any = field(metadata={"parts": "logger"})
