"""Labels: which there are, how many of each, and their places among the classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.source import Block, Source

MOST_CLASSES = 100_000
SHOWN = 10  # classes in a message


def together(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Labels one after the other; NumPy would turn numbers among strings into strings."""
    if len({part.dtype for part in parts}) > 1:
        families = {_family(part) for part in parts} - {"objects"}
        if len(families) > 1:
            raise TypeError(f"labels are {' and '.join(sorted(families))}; give them all one type")
    return np.concatenate(parts)


def distinct(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Different labels, sorted, and how many there are of each."""
    try:
        return np.unique(labels, return_counts=True)
    except TypeError:
        found = sorted({type(label).__name__ for label in labels.tolist()})
        raise TypeError(f"labels are of the types {', '.join(found)}, which have no order; use one type") from None


def places(y: NDArray[Any], classes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Places of labels among the classes, which are sorted, and whether each is among them."""
    if not len(y) or not len(classes):
        return np.zeros(len(y), dtype=np.int64), np.zeros(len(y), dtype=bool)
    together([y[:1], classes[:1]])  # of one family
    try:
        place = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    except TypeError:
        place = np.zeros(len(y), dtype=np.int64)  # of types that have no order
    return place, np.asarray(classes[place] == y, dtype=bool)


def encode(block: Block, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Labels of a block as places in `classes`, which is sorted; any other label is refused."""
    if block.y is None:
        raise ValueError("the source has no labels; name its column of labels, or give y")
    place, known = places(block.y, classes)
    if not known.all():
        i = int(known.argmin())
        raise ValueError(f"{block.where(i)}: the label {_plain(block.y[i])!r} is not among the classes "
                         f"{_shown(classes)}; leave the row out or give all classes")  # fmt: skip
    return place


class Counts:
    """Which labels there are and how many of each.

    Args:
        classes: all that there may be, sorted; None: whatever comes.
    """

    def __init__(self, classes: NDArray[Any] | None = None) -> None:
        self.is_open = classes is None
        self.classes = np.empty(0, dtype=object) if classes is None else classes
        self.counts = np.zeros(len(self.classes), dtype=np.int64)

    def add(self, block: Block) -> None:
        """Count the labels of a block."""
        if self.is_open and block.y is not None:
            self._open_to(block.y)
        self.counts += np.bincount(encode(block, self.classes), minlength=len(self.classes))

    def join(self, classes: NDArray[Any], counts: NDArray[np.int64]) -> None:
        """Add what was counted elsewhere."""
        self._open_to(classes)
        place, _ = places(classes, self.classes)
        self.counts[place] += counts

    def _open_to(self, labels: NDArray[Any]) -> None:
        """Let labels that are new be among the classes."""
        known = places(labels, self.classes)[1]
        if known.all():
            return
        new = distinct(labels[~known])[0]
        before, counts = self.classes, self.counts
        self.classes = distinct(together([before, new]))[0] if len(before) else new
        self.counts = np.zeros(len(self.classes), dtype=np.int64)
        self.counts[places(before, self.classes)[0]] = counts
        if len(self.classes) > MOST_CLASSES:
            raise ValueError(f"there are more than {MOST_CLASSES} different labels, such as {_shown(self.classes)}; "
                             "is this the column of labels?")  # fmt: skip


class Encoded:
    """A source whose labels are places among the classes; any other label is refused, and where it is said.

    Args:
        source: the rows.
        classes: all labels there may be, sorted.
    """

    def __init__(self, source: Source, classes: NDArray[Any]) -> None:
        self._source, self._classes = source, classes
        self.n_features, self.feature_names, self.lanes = source.n_features, source.feature_names, source.lanes

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        for block in self._source.blocks(lane, seed):
            yield block._replace(y=encode(block, self._classes))

    def fingerprint(self) -> dict[str, Any]:
        return self._source.fingerprint()


def plain(labels: NDArray[Any]) -> list[Any]:
    """Labels for JSON."""
    return [_plain(x) if isinstance(_plain(x), str | int | float) else str(x) for x in labels]


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _shown(classes: NDArray[Any]) -> str:
    more = ", …" if len(classes) > SHOWN else ""
    return f"[{', '.join(repr(_plain(x)) for x in classes[:SHOWN])}{more}]"


def _family(labels: NDArray[Any]) -> str:
    families = {"b": "numbers", "i": "numbers", "u": "numbers", "f": "numbers", "O": "objects", "U": "strings"}
    return families.get(labels.dtype.kind, str(labels.dtype))
