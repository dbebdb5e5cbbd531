"""train.py on a stream: it trains, and a run that was stopped ends with the weights of one that was not."""

import json
from pathlib import Path

import pytest
import torch

from celeris.config.overrides import quoted
from celeris.tasks.cli import main
from celeris.tasks.prepare import prepare
from celeris.tasks.train import train
from tests.data.corpora import LINES


@pytest.mark.slow
def test_a_resumed_run_on_a_stream_ends_as_the_straight_one(tmp_path: Path, capfd, monkeypatch) -> None:
    text = tmp_path / "text"
    text.mkdir()
    for k in range(4):
        records = [json.dumps({"text": f"{k} {i} {line}"}) for i, line in enumerate(LINES * 4)]
        (text / f"{k}.jsonl").write_text("\n".join(records))
    data = ["data=local_stream", f"path={quoted(str(text))}", "data.lanes=4", "data.block_rows=8"]
    data += ["data.source.val_fraction=0.1", "tokenizer=bpe", "tokenizer.vocab_size=300", "experiment=debug"]
    data += [f"paths.cache_dir={quoted(str(tmp_path / 'cache'))}"]
    runs = [f"paths.runs_dir={quoted(str(tmp_path / 'runs'))}", "threads=1", "micro_batch_size=2"]

    def run(*words: str) -> None:
        monkeypatch.delenv("CELERIS_RUN_ID", raising=False)
        assert main(train, [*data, *runs, *words]) == 0

    assert main(prepare, data) == 0
    assert "tokenized" in capfd.readouterr().out
    flat = "module.lr_schedule.decay_fraction=0.0"  # a rate that does not ask how long the run will be
    run(flat, "run_id=parts", "trainer.max_steps=3")
    run(flat, "run_id=parts", "trainer.max_steps=6", "ckpt=last")
    run(flat, "run_id=whole", "trainer.max_steps=6")
    whole, parts = (
        torch.load(tmp_path / "runs" / "debug" / name / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for name in ("whole", "parts")
    )
    assert whole.keys() == parts.keys() and all(torch.equal(whole[key], parts[key]) for key in whole)
