"""Predictions for the rows of a source, written to Parquet as they are made: memory does not grow with the rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.arrow import arrow
from cavity.data.source import Array, Block, Source
from cavity.data.survey import my_lanes
from cavity.files.atomic import atomic_write
from cavity.runtime.distributed import SINGLE_PROCESS, Workers

ROW, LABEL, PROBABILITY = "row", "prediction", "p_"


def write_predictions(
    source: Source,
    log_proba: Callable[[Array], Array],
    classes: NDArray[Any],
    folder: str | os.PathLike[str],
    resume: bool = False,
    workers: Workers = SINGLE_PROCESS,
) -> int:
    """A file for each lane, in the order of the rows: row number, most probable label, probability of each class.

    A file has its name only once it is whole. Workers share the lanes.

    Returns:
        How many rows this rank has predicted for.
    """
    path, total = Path(folder), 0
    path.mkdir(parents=True, exist_ok=True)
    done = {found.name for found in path.glob("part-*.parquet")}
    if done and not resume:
        raise ValueError(f"the folder {folder} holds predictions already ({min(done)}); "
                         "give another, or resume=True to write what is missing")  # fmt: skip
    for lane in workers.in_touch(my_lanes(source, workers)):
        name = f"part-{lane:05d}.parquet"
        if name not in done:
            total += _write(path / name, _tables(source.blocks(lane), log_proba, classes))
    return total


def _tables(blocks: Iterator[Block], log_proba: Callable[[Array], Array], classes: NDArray[Any]) -> Iterator[Any]:
    pa = arrow()
    for block in blocks:
        log_p = log_proba(block.X)
        columns = {ROW: block.rows, LABEL: classes[log_p.argmax(1)].tolist()}
        columns |= {f"{PROBABILITY}{label}": p for label, p in zip(classes.tolist(), np.exp(log_p).T, strict=True)}
        yield pa.table(columns)


def _write(path: Path, tables: Iterator[Any]) -> int:
    """Write beside, then rename; how many rows there are."""
    from pyarrow.parquet import ParquetWriter

    if (first := next(tables, None)) is None:
        return 0
    with atomic_write(path) as temporary, ParquetWriter(temporary, first.schema) as writer:
        rows = 0
        for table in chain([first], tables):
            writer.write_table(table)
            rows += table.num_rows
    return rows
