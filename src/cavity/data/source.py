"""The protocol of a row source, and the checks that all rows pass.

A source divides its rows into lanes. Distributed workers share the lanes; a single process reads them all. A row is
identified by its lane and its number there, which depend neither on the number of workers nor on the reading order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import concat_labels
from cavity.data.schema import CategoricalFeatures, Schema, as_array, needs_schema, number_schema

Array = NDArray[np.float64]
T = TypeVar("T")

BUFFER_ROWS = 65_536  # in the shuffle buffers of all lanes together
BLOCK_ROWS, BLOCK_NUMBERS = 8_192, 2**19  # in a block at most
MIN_BLOCK_ROWS = 256  # below that, reading costs more than the rows do

REMEDY = "fill it in or remove the row"
TABLE_ATTRIBUTES = ("shape", "columns", "__array__", "__array_interface__", "__dataframe__")


class Block(NamedTuple):
    """Consecutive rows of a lane.

    Attributes:
        X: the cells of the inputs, (n, D): numbers as they are, other columns as `cavity.data.schema` codes them, NaN
            where a cell is missing.
        y: labels of any type, (n,); None where the source has none.
        rows: the numbers of the rows in the lane, (n,).
        where: names the place where the i-th row is stored, for error messages.
    """

    X: Array
    y: NDArray[Any] | None
    rows: NDArray[np.int64]
    where: Callable[[int], str]


class CategoryBlock(NamedTuple):
    """The categories of consecutive rows, not coded yet, as Arrow arrays by the places of the columns."""

    columns: dict[int, Any]
    y: NDArray[Any] | None
    where: Callable[[int], str]


@runtime_checkable
class Source(Protocol):
    """Rows for training or prediction; they need not fit in memory."""

    @property
    def n_features(self) -> int:
        """D."""

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the columns of X, in order."""

    @property
    def lanes(self) -> int:
        """Number of lanes."""

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        """Read the rows of a lane in stored order; a seed permutes the pieces that it is read in."""

    def fingerprint(self) -> dict[str, Any]:
        """Identify the data, as JSON values; the same wherever the data are stored."""


class ColumnSource(Source, Protocol):
    """A source whose columns can hold categories and dates."""

    categorical_features: CategoricalFeatures

    @property
    def schema(self) -> Schema | None:
        """What the columns hold; None where all hold numbers. Levels that are not found yet are None."""

    def with_schema(self, schema: Schema) -> ColumnSource:
        """Return a copy that codes its cells by this schema."""

    def categories(self, lane: int) -> Iterator[CategoryBlock]:
        """Read the categories and labels of a lane in stored order."""


def schema_of(source: Source) -> Schema | None:
    """Return what the columns hold; None where all hold numbers, as in any source without a schema."""
    return getattr(source, "schema", None)


def coded(source: Source, schema: Schema | None) -> Source:
    """Return the source with cells coded by the schema; without one, as it is."""
    return source if schema is None else cast(ColumnSource, source).with_schema(schema)


def is_source(obj: Any) -> bool:
    """Whether `fit` reads rows from the object: False for arrays, frames, sparse matrices and lists of rows.

    >>> is_source([[0.0, 1.0], [2.0, 3.0]])
    False
    """
    if isinstance(obj, Source):
        return True
    if isinstance(obj, list | tuple):
        pairs = (isinstance(item, tuple | list) and len(item) == 2 for item in obj)
        return len(obj) > 0 and all(pairs) and all(len(getattr(X, "shape", ())) == 2 for X, _ in obj)
    if isinstance(obj, str | bytes | Mapping | set | frozenset | type):
        return False
    return not any(hasattr(obj, name) for name in TABLE_ATTRIBUTES) and (callable(obj) or isinstance(obj, Iterable))


def as_source(obj: Any, categorical_features: CategoricalFeatures = "from_dtype") -> Source:
    """Return the source itself, or wrap a DataLoader or another iterable of batches.

    Raises:
        ValueError: if a source was created without the `categorical_features` given here.
    """
    from cavity.data.iterables import Batches

    if not isinstance(obj, Source):
        return Batches(obj, categorical_features=categorical_features)
    own = getattr(obj, "categorical_features", "from_dtype")
    is_default = isinstance(categorical_features, str) or (categorical_features is None and schema_of(obj) is None)
    if not is_default and isinstance(own, str):
        raise ValueError(
            "categorical_features must be given to the source, as in Parquet(path, categorical_features=...), got "
            f"{categorical_features!r} for the classifier alone"
        )
    return obj


def read_all(source: Source) -> tuple[Array, NDArray[Any]]:
    """Read the cells and labels of all lanes into memory, in stored order; levels that are not known are found first.

    >>> from cavity.data import Arrays
    >>> X, y = read_all(Arrays([[1.0], [2.0], [3.0]], ["no", "yes", "no"], lanes=2))
    >>> X[:, 0].tolist(), y.tolist()
    ([1.0, 2.0, 3.0], ['no', 'yes', 'no'])
    """
    schema = schema_of(source)
    if schema is not None and schema.has_unknown_levels:
        from cavity.data.surveys import find_levels

        source = coded(source, find_levels(source, schema)[0])
    blocks = [block for lane in range(source.lanes) for block in source.blocks(lane)]
    if not blocks:
        raise ValueError("The source has no rows; at least one is required.")
    return np.concatenate([block.X for block in blocks]), concat_labels([labels_of(block) for block in blocks])


def labels_of(block: Block) -> NDArray[Any]:
    """Return the labels of a block, which must have some."""
    if block.y is None:
        raise ValueError("The source has no labels; name its label column with `target`, or give y.")
    return block.y


def block_rows(n_features: int, lanes: int) -> int:
    """Return how many rows a lane reads at a time, so that the blocks of all lanes together stay small."""
    return max(MIN_BLOCK_ROWS, min(BLOCK_ROWS, BUFFER_ROWS // lanes, BLOCK_NUMBERS // max(n_features, 1)))


def permuted(pieces: Sequence[T], seed: int | None) -> list[T]:
    """Return the pieces in an order drawn from the seed; without a seed, in stored order."""
    if seed is None:
        return list(pieces)
    return [pieces[i] for i in np.random.default_rng(seed).permutation(len(pieces))]


def row_hashes(X: Array) -> NDArray[np.uint64]:
    """Hash each row to a number: equal rows have equal numbers, and different rows hardly ever do.

    >>> a, b, c = row_hashes(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]))
    >>> bool(a == b), bool(a == c)
    (True, False)
    """
    found = np.zeros(len(X), dtype=np.uint64)
    for first in range(0, len(X), BLOCK_ROWS):  # the columns of a block fit into a cache
        rows = slice(first, first + BLOCK_ROWS)
        for column in X[rows].T:
            bits = (column + 0.0).view(np.uint64)  # without negative zeros
            found[rows] = (found[rows] ^ bits) * np.uint64(0x9E3779B97F4A7C15)
            found[rows] ^= found[rows] >> np.uint64(29)
    return found


def row_name(name: str, start: int, i: int) -> str:
    """Name the i-th row after `start`, for error messages."""
    return f"{name}, row {start + i}"


def as_features(values: Any, n_features: int | None, name: str, first: int = 0) -> Array:
    """Convert inputs to float64, (n, D), without a copy where they already are; `first` is the number of the first."""
    shape = values.shape if hasattr(values, "shape") else as_array(values).shape
    if len(shape) != 2 or n_features not in (None, shape[1]):
        expected = "two dimensions" if n_features is None else f"two dimensions and {n_features} columns"
        raise ValueError(f"{name} must have {expected}, got the shape {tuple(shape)}.")
    if needs_schema(values):  # raises an error that names a column of anything but numbers
        return number_schema(range(shape[1])).read(values, name, first)
    X = as_array(values)
    if X.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold numbers, got values of type {X.dtype}.")
    return np.asarray(X, dtype=np.float64)


def as_labels(values: Any, n_rows: int, name: str) -> NDArray[Any]:
    """Convert labels of any type to an array, (n,); a single column is accepted."""
    y = as_array(values)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.shape != (n_rows,):
        raise ValueError(f"{name} must have one label for each of {n_rows} rows, got the shape {y.shape}.")
    return y


def check_block(block: Block, feature_names: list[str] | None) -> Block:
    """Return the block with one bit pattern for all gaps; raise ValueError for an infinite value or a missing label."""
    finite = np.isfinite(block.X)
    if not finite.all():
        gaps = np.isnan(block.X)
        infinite = np.argwhere(~finite & ~gaps)
        if len(infinite):
            i, j = (int(k) for k in infinite[0])
            name = j if feature_names is None else repr(feature_names[j])
            raise ValueError(f"{block.where(i)}: feature {name} is infinite ({block.X[i, j]}); {REMEDY}")
        block = block._replace(X=np.where(gaps, np.nan, block.X))
    check_labels(block.y, block.where)
    return block


def check_labels(y: NDArray[Any] | None, where: Callable[[int], str]) -> None:
    """Raise ValueError where a label is missing."""
    if y is not None and y.dtype.kind in "fMO":
        try:
            missing = np.asarray(y == None) | np.not_equal(y, y)  # noqa: E711 (element by element)
        except TypeError:  # pandas' NA is neither equal to itself nor unequal
            missing = np.array([type(label).__name__ == "NAType" or label is None for label in y], dtype=bool)
        if missing.any():
            i = int(missing.argmax())
            raise ValueError(f"{where(i)}: the label is missing ({y[i]}); {REMEDY}")
