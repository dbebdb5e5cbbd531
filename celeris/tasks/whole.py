"""Which checkpoint a run can go on from, when a disk or a file system has damaged the newest one."""

import zipfile
from pathlib import Path

from celeris.errors import CelerisError


def is_whole(checkpoint: Path) -> bool:
    """Whether a file was written to its end, or a folder of shards has the index that is written last."""
    if checkpoint.is_dir():
        return (checkpoint / ".metadata").is_file()
    return zipfile.is_zipfile(checkpoint)  # the directory of a zip file, which torch.save writes, stands at its end


def newest_whole(folder: Path) -> Path | None:
    """last.ckpt, else the newest step_*.ckpt that is whole; None where no checkpoint was ever written.

    Raises:
        CelerisError: there are checkpoints and none of them is whole.
    """
    last = folder / "last.ckpt"
    if not last.exists():
        return None
    found = [last, *sorted(folder.glob("step_*.ckpt"), reverse=True)]
    for checkpoint in found:
        if is_whole(checkpoint):
            return checkpoint
    raise CelerisError(
        f"Each of the {len(found)} checkpoints in {folder} is damaged (cut off, or not written to its end); bring one "
        "back from a copy, or remove that folder to start from the beginning."
    )


def check_whole(checkpoint: Path) -> None:
    """Raises CelerisError, which names the newest whole neighbour, if `checkpoint` is damaged."""
    if is_whole(checkpoint):
        return
    whole = [path for path in sorted(checkpoint.parent.glob("step_*.ckpt"), reverse=True) if is_whole(path)]
    tail = f"the newest whole one beside it is ckpt={whole[0]}." if whole else "there is no whole one beside it."
    raise CelerisError(f"The checkpoint {checkpoint} is damaged (cut off, or not written to its end); {tail}")
