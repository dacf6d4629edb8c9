"""The scaling of the inputs as a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cavity.export.graph import Value
from cavity.fitting.encoding import Quantile, Scaler, Standard, Unscaled
from cavity.numerics.limits import LARGEST_INPUT

Array = NDArray[np.float64]


def scaled(scaler: Scaler, X: Value) -> Value:
    """The rows in the units that the kernel sees, (N, D), within ±`LARGEST_INPUT` always."""
    if type(scaler) is Standard:
        moved = (X * 0.5 - 0.5 * scaler.mean) / (0.5 * scaler.sd)  # halves: no difference overflows
    elif type(scaler) is Quantile:
        moved = _quantile(scaler, X)
    elif type(scaler) is Unscaled:
        moved = X
    else:
        raise TypeError(f"scaler={scaler!r} cannot be exported; Standard, Quantile and Unscaled can")
    return moved.clip(-LARGEST_INPUT, LARGEST_INPUT)


def _quantile(scaler: Quantile, X: Value) -> Value:
    """Through the knots, and beyond them with the slope of `Standard`."""
    x, halves = X * 0.5, [0.5 * knots for knots in scaler.knots]
    first, last = (np.array([half[end] for half in halves]) for end in (0, -1))
    beyond = (x - first).at_most(0.0) + (x - last).at_least(0.0)
    return _inside(x, halves, scaler.levels) + beyond / (0.5 * scaler.standard.sd)


def _inside(x: Value, knots: list[Array], levels: tuple[Array, ...]) -> Value:
    """Straight lines between the knots; constant beyond the first and the last."""
    index = _last_knot_below(x, _table(knots, np.inf))
    knot, level = _table(knots, 0.0), _table(levels, 0.0)
    width, rise = (_table([np.diff(row, append=row[-1]) for row in rows], 0.0) for rows in (knots, levels))
    width = np.where(width > 0.0, width, 1.0)
    at_knot, of_width, at_level, of_rise = (
        x.graph.constant(table.ravel()).take(index) for table in (knot, width, level, rise)
    )
    return at_level + ((x - at_knot) / of_width).clip(0.0, 1.0) * of_rise


def _last_knot_below(x: Value, knots: Array) -> Value:
    """Where it stands in the table of all knots, row after row; the first knot for what is below it. By halves."""
    flat, step = x.graph.constant(knots.ravel()), knots.shape[1] // 2
    index = x.graph.op("Expand", np.arange(len(knots)) * knots.shape[1], x.graph.op("Shape", x))
    while step:
        ahead = index + step
        index = (flat.take(ahead) <= x).where(ahead, index)
        step //= 2
    return index


def _table(rows: Sequence[Array], fill: float) -> Array:
    """Rows of different lengths as one array, filled up at their ends to a power of two."""
    size = 1 << (max(map(len, rows)) - 1).bit_length()
    return np.stack([np.pad(row, (0, size - len(row)), constant_values=fill) for row in rows])
