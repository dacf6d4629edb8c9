"""Tables and small pictures for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SHADES = " .:-=+*#%@"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: the first to the left, the others to the right.

    >>> print(table(["name", "x"], [["a", "1.0"]]))
    name    x
    a     1.0
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in [header, *rows]]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def images(pictures: NDArray[np.float64], captions: Sequence[Sequence[str]], gap: int = 3) -> str:
    """Grey images side by side, drawn in characters, with lines of caption below each."""
    drawn = [_draw(picture) + list(lines) for picture, lines in zip(pictures, captions, strict=True)]
    width = max(len(line) for block in drawn for line in block) + gap
    return "\n".join("".join(line.ljust(width) for line in lines).rstrip() for lines in zip(*drawn, strict=True))


def _draw(picture: NDArray[np.float64]) -> list[str]:
    low, high = picture.min(), picture.max()
    shade = ((picture - low) / max(high - low, 1e-12) * (len(SHADES) - 1)).round().astype(int)
    return ["".join(SHADES[s] * 2 for s in row) for row in shade]
