"""Runs a function in several processes that train together, as torchrun would start them."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def start(function: Callable[..., Any], size: int, folder: Path, *args: Any) -> list[subprocess.Popen[bytes]]:
    """The processes, each with a rank; what the function returns is left in `folder`."""
    port = free_port()
    job = folder / "job.pickle"
    job.write_bytes(pickle.dumps((function, args)))
    names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1",
             "TORCHELASTIC_RUN_ID": "tests"}  # fmt: skip
    command = [sys.executable, "-m", "tests.workers", str(folder)]
    return [
        subprocess.Popen(command, cwd=ROOT, env={**os.environ, **names, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(size)
    ]


def results(folder: Path, size: int) -> list[Any]:
    """What the function has returned in each rank."""
    return [pickle.loads((folder / f"result-{rank}.pickle").read_bytes()) for rank in range(size)]


def run(function: Callable[..., Any], size: int, folder: Path, *args: Any) -> list[Any]:
    """Start, wait, and collect."""
    folder.mkdir(parents=True, exist_ok=True)
    processes = start(function, size, folder, *args)
    codes = [process.wait(timeout=300) for process in processes]
    assert codes == [0] * size
    return results(folder, size)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main(folder: Path) -> None:
    """One of the processes."""
    function, args = pickle.loads((folder / "job.pickle").read_bytes())
    result = function(*args)
    (folder / f"result-{os.environ['RANK']}.pickle").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
