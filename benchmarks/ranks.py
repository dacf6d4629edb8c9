"""A SEP step on one process and on two that share its rows, compared with the model of its cost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.problems import Options
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.runtime.memory import step_cost

SIZES = ({"C": 4, "M": 100, "D": 10, "B": 500}, {"C": 4, "M": 100, "D": 10, "B": 8000},
         {"C": 10, "M": 200, "D": 10, "B": 2000})  # fmt: skip
STEPS = 24  # of an epoch
EPOCHS = 2  # after the first, which does not count


def measure(options: Options) -> Iterator[Record]:
    """Measure a step for the same batch on one and on two processes with one thread each."""
    for size in SIZES:
        for count in (1, 2):
            cost = step_cost("sep", size["C"], size["M"], size["D"], size["B"], count)
            model = {"gflop": round(cost.flop / 1e9, 3), "message_mb": round(cost.message_bytes / 1e6, 3)}
            yield {"case": "ranks", "what": f"cavity sep, {count} rank{'s' * (count > 1)}", **size, "ranks": count,
                   "ms": _measured(size, count), **model}  # fmt: skip


def _measured(size: dict[str, int], count: int) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = Path(__file__).parents[1]
    names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.ranks", json.dumps(size)]
    started = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, **names, "RANK": str(rank)}, cwd=root, text=True
        )
        for rank in range(count)
    ]
    found = [process.communicate()[0] for process in started]
    return round(max(map(float, found)), 3)


def step_milliseconds(size: dict[str, int]) -> float:
    """Return the least milliseconds of a step, by epochs after the first."""
    C, M, D, B = (size[name] for name in "CMDB")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((STEPS * B, D))
    y = rng.integers(0, C, len(X))
    model = GPClassifier("sep", n_inducing=M, batch_size=B, max_epochs=1 + EPOCHS, tol=0.0, calibrate=False,
                         init="random", random_state=0, device="cpu", distributed=True).fit(X, y)  # fmt: skip
    return 1e3 * float(np.diff([record["seconds"] for record in model.history_]).min()) / STEPS


if __name__ == "__main__":
    print(step_milliseconds(json.loads(sys.argv[1])))
