"""A step by one process and by two that share its rows, beside the model of its cost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

from cavity.bench.problems import Options
from cavity.classifier import GPClassifier
from cavity.records import Record
from cavity.runtime.memory import step_cost

SIZES = ({"C": 4, "M": 100, "D": 10, "B": 500}, {"C": 4, "M": 100, "D": 10, "B": 8000},
         {"C": 10, "M": 200, "D": 10, "B": 2000})  # fmt: skip
STEPS = 24  # of an epoch
EPOCHS = 2  # the first is left out


def ranks(options: Options) -> Iterator[Record]:
    """Milliseconds of a SEP step for the same batch on one and on two processes of one thread each."""
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
    names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from cavity.bench.ranks import one_rank; one_rank()", json.dumps(size)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **names, "RANK": str(rank)}, text=True)
        for rank in range(count)
    ]
    found = [process.communicate()[0] for process in started]
    return round(max(map(float, found)), 3)


def _step(size: dict[str, int]) -> float:
    """The least milliseconds of a step, epoch by epoch, the first left out."""
    C, M, D, B = (size[name] for name in "CMDB")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((STEPS * B, D))
    y = rng.integers(0, C, len(X))
    model = GPClassifier("sep", n_inducing=M, batch_size=B, max_epochs=1 + EPOCHS, tol=0.0, calibrate=False,
                         init="random", random_state=0, device="cpu").fit(X, y)  # fmt: skip
    return 1e3 * float(np.diff([record["seconds"] for record in model.history_]).min()) / STEPS


def one_rank() -> None:
    """One of the processes: its size is the argument, its answer a line."""
    print(_step(json.loads(sys.argv[1])))
