"""How fast it is: steps, fits and predictions, beside rivals and the machine's own limit, with a history."""

from cavity.bench.cases import CASES, USUAL
from cavity.bench.history import HEADER, line, summary
from cavity.bench.problems import Options, Size
from cavity.bench.quality import reached
from cavity.bench.tasks import TASKS
from cavity.records import append, machine, read

__all__ = [
    "CASES",
    "HEADER",
    "TASKS",
    "USUAL",
    "Options",
    "Size",
    "append",
    "line",
    "machine",
    "reached",
    "read",
    "summary",
]
