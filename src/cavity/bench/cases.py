"""The benchmarks by name; each gives records to append to the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cavity.bench.fits import fit, predict
from cavity.bench.large import classes, memory, source
from cavity.bench.problems import Options
from cavity.bench.quality import quality
from cavity.bench.ranks import ranks
from cavity.bench.scaling import scaling
from cavity.bench.steps import step
from cavity.records import Record

CASES: dict[str, Callable[[Options], Iterator[Record]]] = {
    "step": step,
    "fit": fit,
    "predict": predict,
    "scaling": scaling,
    "quality": quality,
    "memory": memory,
    "source": source,
    "classes": classes,
    "ranks": ranks,
}
USUAL = ("step", "fit", "predict", "scaling")  # where none is named: the others take long, or data
