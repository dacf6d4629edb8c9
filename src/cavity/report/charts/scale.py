"""From values to places on the page, and the round numbers to write along an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class Scale(NamedTuple):
    """Values from `low` to `high` lie from `start` to `end`; with `root`, as their square roots.

    >>> Scale(0.0, 10.0, 100.0, 200.0)(5.0)
    150.0
    """

    low: float
    high: float
    start: float
    end: float
    root: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value; what lies outside is put at the end."""
        low, high, value = (self._bent(v) for v in (self.low, self.high, min(max(value, self.low), self.high)))
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers to write along the scale."""
        return _root_ticks(self.high) if self.root else ticks(self.low, self.high, about)

    def _bent(self, value: float) -> float:
        return math.sqrt(max(value, 0.0)) if self.root else value


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`.

    >>> ticks(0.0, 1.0), ticks(-830.0, -390.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [-800.0, -700.0, -600.0, -500.0, -400.0])
    """
    step = _step((high - low) / about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [_clean(i * step, step) for i in range(first, last + 1)]


def reach(values: Iterable[float], zero: bool = False) -> tuple[float, float]:
    """From the least to the largest finite value, a little apart in any case; from 0 where asked for."""
    finite = [float(v) for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    low = min(low, 0.0) if zero else low
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        high = low + (abs(low) or 1.0)
    return low, high


def roomy(low: float, high: float, share: float = 0.04) -> tuple[float, float]:
    """With a little room on both sides."""
    return low - share * (high - low), high + share * (high - low)


def _step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return min((factor * size for factor in STEPS), key=lambda step: abs(math.log(step / rough)))


def _clean(value: float, step: float) -> float:
    """Without the rounding errors of a product."""
    return round(value, max(0, 2 - math.floor(math.log10(step)))) + 0.0


def _root_ticks(high: float) -> list[float]:
    """Wide apart where roots are: 0, 1/16, 1/4, 9/16 and all of a round number."""
    top = _step(high * 0.8)
    top = top if top <= high else top / 2.0
    return [0.0, *(_clean(top * share, top * 0.01) for share in (0.05, 0.2, 0.5, 1.0))]
