"""What a source of rows is: lanes of blocks, and the checks that every block passes.

A lane is a stream of rows of its own. Processes divide the lanes among themselves; a single one reads them all. What
a row is called, its lane and its number there, depends neither on that nor on the order in which it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
T = TypeVar("T")

ROWS = 65_536  # in the buffers of all lanes together
BLOCK_ROWS, BLOCK_NUMBERS = 8_192, 2**19  # in a block at most
FEWEST_ROWS = 256  # in a block: below that, reading costs more than the rows do

REMEDY = "fill it in or leave the row out"


class Block(NamedTuple):
    """Rows that follow each other in a lane.

    Attributes:
        X: inputs, (n, D).
        y: labels of any type, (n,); None where the source has none.
        rows: their numbers in the lane, as stored.
        where: where the i-th of them is stored, in words.
    """

    X: Array
    y: NDArray[Any] | None
    rows: NDArray[np.int64]
    where: Callable[[int], str]


@runtime_checkable
class Source(Protocol):
    """Rows to train on or to predict for, however many."""

    @property
    def n_features(self) -> int:
        """D."""

    @property
    def feature_names(self) -> list[str] | None:
        """In the order of the columns of X."""

    @property
    def lanes(self) -> int:
        """How many streams of rows there are."""

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        """The rows of a lane as stored; with a seed its pieces come in an order drawn from it."""

    def fingerprint(self) -> dict[str, Any]:
        """What tells these data from others, for JSON; the same wherever they lie."""


def block_rows(n_features: int, lanes: int) -> int:
    """How many rows a lane reads at a time, so that all lanes together hold little."""
    return max(FEWEST_ROWS, min(BLOCK_ROWS, ROWS // lanes, BLOCK_NUMBERS // max(n_features, 1)))


def arranged(pieces: Sequence[T], seed: int | None) -> list[T]:
    """As stored, or in an order drawn from the seed."""
    if seed is None:
        return list(pieces)
    return [pieces[i] for i in np.random.default_rng(seed).permutation(len(pieces))]


def spot(name: str, start: int, i: int) -> str:
    """In words: the i-th row after `start` in what is called `name`."""
    return f"{name}, row {start + i}"


def as_array(values: Any) -> NDArray[Any]:
    """A NumPy array of anything like one; tensors may lie on any device."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def as_numbers(values: Any, n_features: int | None, name: str) -> Array:
    """Inputs as float64, (n, D); no copy is made of what is that already."""
    X = as_array(values)
    if X.dtype.kind not in "biufO":
        raise TypeError(f"{name} holds values of type {X.dtype}; numbers are needed")
    if X.ndim != 2 or n_features not in (None, X.shape[1]):
        wanted = "one row per observation" if n_features is None else f"{n_features} columns"
        raise ValueError(f"{name} has the shape {X.shape}; {wanted} are needed, in two dimensions")
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} holds something that is no number ({error})") from None


def as_labels(values: Any, n_rows: int, name: str) -> NDArray[Any]:
    """Labels of any type, (n,); a single column will do."""
    y = as_array(values)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.shape != (n_rows,):
        raise ValueError(f"{name} has the shape {y.shape}; one label for each of {n_rows} rows is needed")
    return y


def checked(block: Block, feature_names: list[str] | None) -> Block:
    """The block itself; a missing or infinite value or a missing label is refused, and where it is said."""
    finite = np.isfinite(block.X)
    if not finite.all():
        _refuse_value(block, finite, feature_names)
    if block.y is not None and (missing := _missing(block.y)).any():
        i = int(missing.argmax())
        raise ValueError(f"{block.where(i)}: the label is missing ({block.y[i]}); {REMEDY}")
    return block


def _refuse_value(block: Block, finite: NDArray[np.bool_], feature_names: list[str] | None) -> NoReturn:
    i, j = (int(k) for k in np.argwhere(~finite)[0])
    value, name = block.X[i, j], j if feature_names is None else repr(feature_names[j])
    what = "missing" if np.isnan(value) else "infinite"
    raise ValueError(f"{block.where(i)}: feature {name} is {what} ({value}); {REMEDY}")


def _missing(y: NDArray[Any]) -> NDArray[np.bool_]:
    if y.dtype.kind == "O":
        return _missing_objects(y)
    if y.dtype.kind in "fM":
        return np.not_equal(y, y)
    return np.zeros(len(y), dtype=bool)


def _missing_objects(y: NDArray[Any]) -> NDArray[np.bool_]:
    try:
        return np.asarray(y == None) | np.not_equal(y, y)  # noqa: E711 (element by element)
    except TypeError:  # pandas' NA is neither equal to itself nor unequal
        return np.array([type(label).__name__ == "NAType" or label is None for label in y], dtype=bool)
