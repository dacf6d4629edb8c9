"""How fast it is: steps, fits and predictions, beside rivals and the machine's own limit, with a history."""

from cavity.bench.cases import CASES
from cavity.bench.problems import Size
from cavity.bench.records import append, machine, read

__all__ = ["CASES", "Size", "append", "machine", "read"]
