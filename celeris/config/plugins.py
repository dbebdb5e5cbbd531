"""Code of the user's own: folders or modules whose classes a configuration, and an export, may name."""

import sys
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path

from omegaconf import DictConfig

from celeris.build import trust
from celeris.config.resolvers import ROOT
from celeris.errors import CelerisError


def load_plugins(config: DictConfig) -> None:
    """Trust what `config.plugins` names, and make the folders in it importable.

    Each entry is a folder (every module in it) or the name of a module that can be imported. Folders are looked up in
    the working directory, then beside the root scripts, and written back as absolute paths.

    Raises:
        CelerisError: an entry is neither, or a module of the folder has the name of another that is already there.
    """
    node = config.plugins
    entries = [node] if isinstance(node, str) else list(node or [])
    config.plugins = [_load(str(entry)) for entry in entries]


def _load(entry: str) -> str:
    for base in (Path.cwd(), ROOT):
        folder = (base / Path(entry).expanduser()).resolve()
        if folder.is_dir():
            _load_folder(folder)
            return str(folder)
    if not entry.replace(".", "_").isidentifier():
        raise CelerisError(f"plugins={entry} is no folder; name one, or a module that can be imported.")
    try:
        import_module(entry)
    except ImportError as error:
        raise CelerisError(f"plugins={entry} is neither a folder nor a module ({error}); check its name.") from error
    trust(entry.partition(".")[0])
    return entry


def _load_folder(folder: Path) -> None:
    """Trust the modules of `folder`, which goes to the end of the search path: it can hide nobody else's."""
    names = [path.stem for path in folder.glob("*.py")] + [path.parent.name for path in folder.glob("*/__init__.py")]
    if not names:
        raise CelerisError(f"plugins={folder} holds no Python module; name the folder with the .py file.")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    invalidate_caches()
    for name in names:
        spec = find_spec(name)
        if spec is None or spec.origin is None or folder not in Path(spec.origin).resolve().parents:
            raise CelerisError(f"The module {name!r} of plugins={folder} has the name of another; rename the file.")
    trust(*names)
