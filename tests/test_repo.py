"""Rules that hold for the whole repository: who may import whom, size of files, and that importing does nothing."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "celeris"

# A room may import the rooms of its own line and of the lines above it.
ROOMS = [
    ["typing", "errors", "build", "streams", "batch", "tokenizer", "language_model"],
    ["embedding"],
    ["noise"],
    ["denoiser"],
    ["rounding"],
    ["model"],
    ["objectives"],
    ["sampling"],
    ["data"],
    ["baselines"],
    ["evaluation"],
    ["training", "distillation"],
    ["scaling"],
    ["serving"],
    ["interop"],
    ["config"],
    ["tasks"],
]
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
ONLY_IN = {
    "lightning": {"training", "distillation"},
    "hydra": {"config", "tasks"},
    "omegaconf": {"config", "tasks"},
}
OPTIONAL = {"flash_attn", "flash_attn_interface", "wandb", "transformers", "datasets", "pyarrow", "gguf"}
OPTIONAL |= {"mauve", "sacrebleu", "rouge_score", "pydivsufsort", "jsonschema", "lm_eval"}
OPTIONAL |= {"reasoning_gym"}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path, top_level: bool = False) -> Iterator[str]:
    """Names of the modules that a file imports, everywhere or while it is being imported itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module)
            if node.module == "celeris":  # from celeris import errors
                yield from (f"celeris.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_imports_go_down(path: Path) -> None:
    own = room(path)
    for module in imported(path):
        top, *rest = module.split(".")
        if top == "celeris" and rest and rest[0] in RANK and own != "__init__":
            assert RANK[rest[0]] <= RANK[own], f"{name(path)} imports {module}"
        assert own in ONLY_IN.get(top, {own}), f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_optional_packages_are_imported_where_they_are_used(path: Path) -> None:
    assert not OPTIONAL & {module.split(".")[0] for module in imported(path, top_level=True)}


def test_every_package_it_imports_is_declared() -> None:
    """A clean install must have what the code imports; what is optional is imported where it is used."""
    declared = set(re.findall(r'^ {4}"([\w-]+)', (ROOT / "pyproject.toml").read_text(), flags=re.M))
    pinned = set(re.findall(r"^([\w-]+)[=<]", (ROOT / "requirements.txt").read_text(), flags=re.M))
    development = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements-dev.txt").read_text(), flags=re.M))
    found = {module.split(".")[0] for path in MODULES for module in imported(path)}
    others = found - set(sys.stdlib_module_names) - {"celeris"}
    names = {"hydra": "hydra-core", "omegaconf": "hydra-core", "mauve": "mauve-text", "rouge_score": "rouge-score"}
    names |= {"markdown_it": "markdown-it-py", "lm_eval": "lm-eval", "reasoning_gym": "reasoning-gym"}
    assert {names.get(name, name) for name in others - OPTIONAL} <= declared & pinned
    assert {names.get(name, name) for name in others & OPTIONAL if not name.startswith("flash_attn")} <= (
        pinned | development
    )


def test_every_room_is_in_the_list() -> None:
    assert {room(path) for path in MODULES} - {"__init__"} <= set(RANK)


def test_files_can_be_read_in_one_sitting() -> None:
    lines = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {key: count for key, count in lines.items() if count > 260} == {}
    for script in ("train.py", "sample.py", "evaluate.py"):
        assert len((ROOT / script).read_text().splitlines()) <= 25


NO_NETWORK = """
import importlib, os, pkgutil, socket, subprocess, sys
def refuse(*words, **more): raise AssertionError(f"importing starts something: {words}")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
"""


def run_python(code: str, timeout: float) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_is_quick_and_brings_nothing_along() -> None:
    heavy = {"torch", "lightning", "hydra", "wandb", "transformers"}
    run_python(f"{NO_NETWORK}\nimport celeris\nassert not {heavy!r} & set(sys.modules)", 10)


def test_importing_every_module_starts_no_process_and_no_connection() -> None:
    code = f"""{NO_NETWORK}
import torch, lightning, hydra, matplotlib.pyplot, rich, tokenizers  # what these do is their affair
before = set(sys.modules)
os.fork = subprocess.Popen = os.posix_spawn = refuse
import celeris
for module in pkgutil.walk_packages(celeris.__path__, "celeris."):
    importlib.import_module(module.name)
assert not {OPTIONAL!r} & (set(sys.modules) - before)
"""
    run_python(code, 120)
