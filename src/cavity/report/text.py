"""Numbers, names, lists and tables as text, for the page and for a terminal."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.metrics import CalibrationCheck, Interval

THIN = "\u202f"  # a narrow space that does not break
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # controls, and what no file can hold
SPACES = re.compile(r"[ \t\n\r\f\v]+")
SHADES = " .:-=+*#%@"
FAULTS = {
    "overconfident": "the model is {}overconfident",
    "underconfident": "the model is {}underconfident",
    "mixed": "some probabilities are {}too high, others too low",
}
NEGLIGIBLE_ECE = 0.01  # too small to matter, even if it is significant

# --- Numbers ---


def number(value: float, digits: int = 3) -> str:
    """Write a number with this many decimals.

    >>> number(0.12345), number(-2.0, 1), number(float("inf")), number(float("nan"))
    ('0.123', '−2.0', '∞', '–')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return f"{value:,.{digits}f}".replace("-", "−")


def tidy(value: float, digits: int = 3) -> str:
    """Write a number with this many significant digits and no trailing zeros.

    >>> tidy(0.5), tidy(1200.0), tidy(0.00012)
    ('0.5', '1,200', '1.2e−4')
    """
    if not math.isfinite(value) or value == 0.0:
        return number(value, 0)
    size = math.floor(math.log10(abs(value)))
    if size < -3 or size > 7:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{_trim(mantissa)}e{int(exponent)}".replace("-", "−")
    return _trim(number(value, max(0, digits - 1 - size)))


def uniform_format(values: Sequence[float], digits: int = 3) -> Callable[[float], str]:
    """Return a formatter that gives the largest value this many digits, and all the same number of decimals.

    >>> write = uniform_format([0.088, 0.106])
    >>> write(0.088), write(0.09)
    ('0.088', '0.090')
    """
    most = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    size = math.floor(math.log10(most)) if most > 0.0 else 0
    if size < -4 or size > 7:
        return lambda value: tidy(value, digits)
    return lambda value: number(value, max(0, digits - 1 - size))


def tick_format(values: Sequence[float]) -> Callable[[float], str]:
    """Return a formatter for the ticks of an axis: all with as many decimals as one of them needs.

    >>> list(map(tick_format([-0.5, 0.0, 0.5]), [-0.5, 0.0, 0.5]))
    ['−0.5', '0.0', '0.5']
    """
    written = [tidy(value) for value in values]
    if any("e" in tick for tick in written):
        return tidy
    decimals = max((len(tick.partition(".")[2]) for tick in written), default=0)
    return lambda value: number(value, decimals)


def percent(share: float, digits: int = 1) -> str:
    """Write a share in percent.

    >>> percent(0.978).replace(THIN, " ")
    '97.8 %'
    """
    return f"{number(100.0 * share, digits)}{THIN}%"


def between(interval: Interval, as_percent: bool = False) -> str:
    """Write the ends of an interval.

    >>> between(Interval(0.2, 0.1, 0.3))
    '0.100 to 0.300'
    """
    if as_percent:
        return f"{number(100.0 * interval.low, 1)} to {percent(interval.high)}"
    return f"{number(interval.low)} to {number(interval.high)}"


def whole(value: float | np.integer[Any]) -> str:
    """Write a count: 1,797."""
    return f"{int(value):,}"


def counted(count: int | np.integer[Any], noun: str) -> str:
    """Write a count with its noun.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "class")
    ('1 row', '1,200 rows', '2 classes')
    """
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{whole(count)} {noun if count == 1 else plural}"


def _trim(written: str) -> str:
    return written.rstrip("0").rstrip(".") if "." in written else written


# --- Calibration ---


def calibration_verdict(check: CalibrationCheck, no_verdict: str = "") -> str:
    """Say what is known about calibration; `no_verdict` is the reason if nothing is.

    >>> calibration_verdict(CalibrationCheck(Interval(0.02, 0.0, 0.03), 0.9, 0.9, None))
    'no sign of miscalibration, but a calibration error of up to 0.030 could go unnoticed'
    >>> calibration_verdict(CalibrationCheck(Interval(0.05, 0.04, 0.07), 0.9, 0.86, "overconfident"))
    'the model is overconfident, by a calibration error of 0.040 to 0.070'
    """
    if no_verdict:
        return f"no verdict on calibration, because {no_verdict}"
    if check.fault is None:
        least = f"a calibration error of up to {number(check.ece.high)} could go unnoticed"
        return f"no sign of miscalibration, but {least}"
    fault = FAULTS[check.fault].format("slightly " if check.ece.high <= NEGLIGIBLE_ECE else "")
    return f"{fault}, by a calibration error of {between(check.ece)}"


# --- Names ---


def listed(names: Sequence[str], most: int = 5) -> str:
    """Join names for a sentence.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ('a, b and c', 'a, b and 1 more')
    """
    if len(names) > most:
        return ", ".join(names[:most]) + f" and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def clean(plain: str) -> str:
    """Put text on one line, with a replacement character for what cannot be shown.

    >>> clean("a\\n b\\0")
    'a b\ufffd'
    """
    return UNPRINTABLE.sub("\ufffd", SPACES.sub(" ", plain))


def name(label: str, width: float = 60) -> str:
    """Shorten a label to a width in letters; the result is never empty.

    >>> name("abcdef", 4), name(" ")
    ('abc…', '(empty)')
    """
    label = clean(label).strip() or "(empty)"
    if text_width(label) <= width:
        return label
    kept, used = "", 1.0
    for character in label:
        used += _width(character)
        if used > width:
            break
        kept += character
    return kept.rstrip(" \u200d\ufe0f") + "…"


def text_width(label: str) -> float:
    """Estimate the width of a label in average letters."""
    return sum(map(_width, label))


def _width(character: str) -> float:
    if unicodedata.combining(character) or character in "\u200d\ufe0f":
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 2.0
    return 1.7 if character in "WM@%mw—" else 1.2 if character.isupper() else 1.0


# --- Terminal ---


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right.

    >>> print(table(["name", "x"], [["a", "1.0"]]))
    name    x
    a     1.0
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in [header, *rows]]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def images(pictures: NDArray[np.float64], captions: Sequence[Sequence[str]], gap: int = 3) -> str:
    """Draw gray images side by side as characters, with lines of caption below each."""
    blocks = []
    for picture, lines in zip(pictures, captions, strict=True):
        share = (picture - picture.min()) / max(np.ptp(picture), 1e-12)
        shades = (share * (len(SHADES) - 1)).round().astype(int)
        blocks.append(["".join(SHADES[s] * 2 for s in row) for row in shades] + list(lines))
    width = max(len(line) for block in blocks for line in block) + gap
    return "\n".join("".join(line.ljust(width) for line in lines).rstrip() for lines in zip(*blocks, strict=True))
