"""All rows of a source at once, where they fit in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import together
from cavity.data.source import Array, Source


def read_all(source: Source) -> tuple[Array, NDArray[Any]]:
    """Inputs and labels of all lanes, one after the other, as stored.

    >>> from cavity.data import Arrays
    >>> X, y = read_all(Arrays([[1.0], [2.0], [3.0]], ["no", "yes", "no"], lanes=2))
    >>> X[:, 0].tolist(), y.tolist()
    ([1.0, 2.0, 3.0], ['no', 'yes', 'no'])
    """
    blocks = [block for lane in range(source.lanes) for block in source.blocks(lane)]
    labels = [block.y for block in blocks if block.y is not None]
    if not labels or len(labels) < len(blocks):
        raise ValueError("the source has no rows, or no labels; name its column of labels, or give y")
    return np.concatenate([block.X for block in blocks]), together(labels)
