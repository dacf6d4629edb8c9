"""Atomic file writes: readers see the old file or the new one, never a part of it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to. It replaces `path` on success and is removed on failure.

    `folder` is a temporary folder on the same file system, by default next to `path`; what is in it is deleted.
    """
    folder = folder or path.with_name(f".cavity-{secrets.token_hex(8)}.tmp")
    temporary = folder / path.name
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield temporary
        temporary.chmod(folder.stat().st_mode & 0o666)  # safetensors creates files that only the owner can read
        _sync(temporary, os.O_RDWR)
        os.replace(temporary, path)
        if os.name != "nt":  # Windows cannot sync a folder, and does not need to
            _sync(path.parent, os.O_RDONLY)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
