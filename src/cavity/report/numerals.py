"""Numbers and names as a reader wants them: few digits, signs instead of words, no name too long for its place."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cavity.report.findings import Interval
from cavity.report.html import clean

THIN = "\u202f"  # a thin space at which no line breaks
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def number(value: float, digits: int = 3) -> str:
    """So many decimals.

    >>> number(0.12345), number(-2.0, 1), number(float("inf")), number(float("nan"))
    ('0.123', '−2.0', '∞', '–')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return _signed(f"{value:,.{digits}f}")


def tidy(value: float, digits: int = 3) -> str:
    """So many digits in all, as an axis wants them.

    >>> tidy(0.5), tidy(1200.0), tidy(0.00012)
    ('0.5', '1,200', '1.2e−4')
    """
    if not math.isfinite(value) or value == 0.0:
        return number(value, 0)
    size = math.floor(math.log10(abs(value)))
    if size < -3 or size > 7:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return _signed(f"{_trim(mantissa)}e{int(exponent)}")
    return _signed(_trim(f"{value:,.{max(0, digits - 1 - size)}f}"))


def alike(values: Sequence[float], digits: int = 3) -> Callable[[float], str]:
    """What writes numbers with as many decimals as give the largest so many digits.

    >>> write = alike([0.088, 0.106])
    >>> write(0.088), write(0.09)
    ('0.088', '0.090')
    """
    most = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    size = math.floor(math.log10(most)) if most > 0.0 else 0
    if size < -4 or size > 7:
        return lambda value: tidy(value, digits)
    decimals = max(0, digits - 1 - size)
    return lambda value: number(value, decimals)


def even(values: Sequence[float]) -> Callable[[float], str]:
    """What writes the numbers along an axis: as many decimals for each as one of them needs.

    >>> list(map(even([-0.5, 0.0, 0.5]), [-0.5, 0.0, 0.5]))
    ['−0.5', '0.0', '0.5']
    """
    written = [tidy(value) for value in values]
    if any("e" in said for said in written):
        return tidy
    decimals = max((len(said.partition(".")[2]) for said in written), default=0)
    return lambda value: number(value, decimals)


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent.

    >>> percent(0.978).replace(THIN, " ")
    '97.8 %'
    """
    return f"{number(100.0 * share, digits)}{THIN}%"


def between(interval: Interval, as_percent: bool = False) -> str:
    """The ends of an interval.

    >>> between(Interval(0.2, 0.1, 0.3))
    '0.100 to 0.300'
    """
    if as_percent:
        return f"{number(100.0 * interval.low, 1)} to {percent(interval.high)}"
    return f"{number(interval.low)} to {number(interval.high)}"


def whole(value: float | np.integer[Any]) -> str:
    """A number of things: 1,797."""
    return f"{int(value):,}"


def many(value: int, thing: str, things: str = "") -> str:
    """So many things, in words up to ten.

    >>> many(1, "row"), many(2, "class", "classes"), many(450, "row")
    ('one row', 'two classes', '450 rows')
    """
    said = WORDS[value] if 0 <= value < len(WORDS) else whole(value)
    return f"{said} {thing if value == 1 else things or thing + 's'}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def name(label: str, width: float = 60) -> str:
    """A label that fits: cut after so many letters' widths, and never empty.

    >>> name("abcdef", 4), name(" ")
    ('abc…', '(empty)')
    """
    label = clean(label).strip() or "(empty)"
    if wide(label) <= width:
        return label
    kept, used = "", 1.0
    for sign in label:
        used += _width(sign)
        if used > width:
            break
        kept += sign
    return kept.rstrip(" \u200d\ufe0f") + "…"


def wide(label: str) -> float:
    """How many letters' widths a label takes, about: a W as many as two."""
    return sum(map(_width, label))


def _width(sign: str) -> float:
    if unicodedata.combining(sign) or sign in "\u200d\ufe0f":
        return 0.0
    if unicodedata.east_asian_width(sign) in "WF":
        return 2.0
    return 1.7 if sign in "WM@%mw—" else 1.2 if sign.isupper() else 1.0


def _trim(written: str) -> str:
    return written.rstrip("0").rstrip(".") if "." in written else written


def _signed(written: str) -> str:
    return written.replace("-", "−")
