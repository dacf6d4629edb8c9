"""What `fit` takes for a source of rows, and what for rows themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch.utils.data import DataLoader

from cavity.data.iterables import Batches
from cavity.data.source import Source

OF_TABLES = ("shape", "columns", "__array__", "__array_interface__", "__dataframe__")


def is_source(obj: Any) -> bool:
    """Whether rows are to be read from it: not so for arrays, frames, sparse matrices and lists of rows.

    >>> is_source([[0.0, 1.0], [2.0, 3.0]])
    False
    """
    if isinstance(obj, Source | DataLoader):
        return True
    if isinstance(obj, list | tuple):
        return len(obj) > 0 and all(_is_batch(item) for item in obj)
    if isinstance(obj, str | bytes | Mapping | set | frozenset | type) or any(hasattr(obj, x) for x in OF_TABLES):
        return False
    return callable(obj) or isinstance(obj, Iterable)


def as_source(obj: Any) -> Source:
    """The source itself; a DataLoader, or another iterable of batches, is made one."""
    return obj if isinstance(obj, Source) else Batches(obj)


def _is_batch(item: Any) -> bool:
    """A pair whose first part is a table."""
    return isinstance(item, tuple | list) and len(item) == 2 and len(getattr(item[0], "shape", ())) == 2
