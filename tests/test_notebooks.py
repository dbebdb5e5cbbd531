"""The notebooks run from the first cell to the last, without a trained model and with one."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from celeris.model import DiffusionLM
from celeris.tokenizer import TextTokenizer, character_backend

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def printed(file: Path) -> str:
    """Run a notebook; everything its cells wrote."""
    notebook = nbformat.read(file, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": file.parent}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    return "".join(output.get("text", "") for output in outputs)


def export(folder: Path) -> None:
    """An untrained export that knows every character of the notebook."""
    tokenizer = TextTokenizer(character_backend([chr(code) for code in range(32, 127)]), 0, 1, 2)
    size = tokenizer.vocab_size
    parts = {
        "embedding": {"_target_": "celeris.embedding.TokenEmbedding", "vocab_size": size, "dim": 8},
        "schedule": {"_target_": "celeris.noise.LossCDFSchedule", "gamma_min": -2.0, "gamma_max": 9.0},
        "denoiser": {"_target_": "celeris.denoiser.Transformer", "dim": 8, "width": 16, "depth": 1, "heads": 2},
    }
    spec = {
        "_target_": "celeris.model.DiffusionLM",
        "vocab_size": size,
        "max_length": 64,
        "block_length": 8,
        "unk_id": 2,
    }
    model = DiffusionLM.from_spec({**spec, **parts})
    model.tokenizer = tokenizer
    model.save_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
@pytest.mark.parametrize("trained", [False, True])
def test_it_runs(file: Path, trained: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERIS_RUNS", str(tmp_path))
    if trained:
        export(tmp_path / "tiny" / "one" / "export")
    text = printed(file)
    assert ("newest export: none" in text) != trained
    assert "denoiser calls for" in text


def test_they_are_stored_without_outputs() -> None:
    for file in NOTEBOOKS:
        cells = nbformat.read(file, as_version=4).cells
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), file
