"""The methods of inference, by name."""

from collections.abc import Callable

from cavity.inference.base import Batch, Method, Objective, RowSites, Terms, Update
from cavity.inference.ep import EP
from cavity.inference.gfitc import GFITC
from cavity.inference.sep import SEP
from cavity.inference.vi import VI, PlainVI

METHODS: dict[str, Callable[..., Method]] = {"ep": EP, "sep": SEP, "gfitc": GFITC, "vi": VI}

__all__ = [
    "EP", "GFITC", "METHODS", "SEP", "VI", "Batch", "Method", "Objective", "PlainVI", "RowSites", "Terms", "Update",
]  # fmt: skip
