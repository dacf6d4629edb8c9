"""Files on disk: those in a folder, and which lane reads which."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class File(NamedTuple):
    """A file of a source.

    Attributes:
        path: where it is.
        key: its name, from the folder of the source on: the same wherever that is moved.
        name: what it is called in messages.
    """

    path: Path
    key: str
    name: str

    def facts(self) -> dict[str, Any]:
        """For the fingerprint."""
        return {"name": self.key, "bytes": self.path.stat().st_size}


def find_files(path: str | os.PathLike[str], endings: tuple[str, ...]) -> list[File]:
    """The file itself, or all files of a folder and of those in it, by name; hidden ones (`.` or `_`) are left out."""
    root = Path(os.path.abspath(path))
    if root.is_file():
        return [File(root, root.name, root.name)]
    if not root.is_dir():
        raise FileNotFoundError(f"path={os.fspath(path)!r}: there is no such file or folder")
    keys = sorted(found.relative_to(root) for found in root.rglob("*") if _is_one(found, endings))
    files = [File(root / key, key.as_posix(), f"{root.name}/{key.as_posix()}") for key in keys if _is_shown(key)]
    if not files:
        raise ValueError(f"path={os.fspath(path)!r}: there is no {' or '.join(endings)} file in this folder")
    return files


def deal(sizes: Sequence[int], lanes: int) -> list[range]:
    """Places of `sizes` for each lane: stretches of nearly equal sums, none of them empty, so that order is kept.

    >>> deal([10, 10, 10, 10, 10], 2)
    [range(0, 2), range(2, 5)]
    """
    if lanes < 1:
        raise ValueError(f"lanes={lanes} cannot be used; 1 or more is needed")
    lanes = max(1, min(lanes, len(sizes)))
    after = np.cumsum([0, *sizes])
    cuts = [0]
    for lane in range(1, lanes):
        nearest = int(np.abs(after - after[-1] * lane / lanes).argmin())
        cuts.append(min(max(nearest, cuts[-1] + 1), len(sizes) - lanes + lane))
    return [range(start, end) for start, end in pairwise([*cuts, len(sizes)])]


def _is_one(path: Path, endings: tuple[str, ...]) -> bool:
    return path.name.endswith(endings) and path.is_file()


def _is_shown(key: Path) -> bool:
    return not any(part.startswith((".", "_")) for part in key.parts)
