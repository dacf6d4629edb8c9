"""Sources of rows: arrays, memory maps, Parquet, CSV, iterables of batches; and a survey of their rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cavity.data.arrays import Arrays, Npy
    from cavity.data.csv import CSV
    from cavity.data.iterables import Batches
    from cavity.data.parquet import Parquet
    from cavity.data.source import Block, Source, read_all
    from cavity.data.surveys import Survey, survey

__all__ = ["CSV", "Arrays", "Batches", "Block", "Npy", "Parquet", "Source", "Survey", "read_all", "survey"]

_MODULES = {
    "arrays": ("Arrays", "Npy"),
    "csv": ("CSV",),
    "iterables": ("Batches",),
    "parquet": ("Parquet",),
    "source": ("Block", "Source", "read_all"),
    "surveys": ("Survey", "survey"),
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the command line starts without torch and pyarrow."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
