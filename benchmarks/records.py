"""Records of measurements: JSON lines with commit, versions and machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

Record = dict[str, Any]
PACKAGES = ("cavity", "torch", "numpy", "scikit-learn", "gpytorch", "gpflow", "tensorflow")


def machine(device: str) -> Record:
    """Return the date, commit, processor, threads and versions, which every record carries."""
    gpu = torch.cuda.get_device_name() if device.startswith("cuda") else None
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or None,
        "processor": gpu or _processor(),
        "threads": torch.get_num_threads(),
        **{name: found for name, found in versions.items() if found is not None},
    }


def append(path: Path, record: Record) -> None:
    """Append a record as one line. It starts a new line if the last one was cut off, such as by a power failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = (json.dumps(record) + "\n").encode()
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(handle).st_size
        is_cut_off = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, b"\n" + line if is_cut_off else line)
    finally:
        os.close(handle)


def read(path: Path) -> list[Record]:
    """Read all records of a file, or none if it does not exist. Lines that were cut off are ignored."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
