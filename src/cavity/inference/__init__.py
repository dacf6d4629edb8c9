"""The methods of inference, by name."""

from cavity.inference.base import Batch, Method, Objective
from cavity.inference.ep import EP
from cavity.inference.sep import SEP

METHODS: dict[str, type[EP] | type[SEP]] = {"ep": EP, "sep": SEP}

__all__ = ["EP", "METHODS", "SEP", "Batch", "Method", "Objective"]
