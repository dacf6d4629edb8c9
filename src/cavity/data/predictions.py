"""Predictions written to CSV or Parquet files as they are computed, so memory does not grow with the rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.source import Array, Source
from cavity.data.surveys import own_lanes
from cavity.data.tables import arrow
from cavity.files.atomic import atomic_write
from cavity.runtime.distributed import SINGLE_PROCESS, Workers

ROW, LABEL, PROBABILITY, SET = "row", "prediction", "p_", "set_"
STDOUT = "-"


def write_predictions(
    source: Source,
    log_proba: Callable[[Array], Array],
    classes: NDArray[Any],
    folder: str | os.PathLike[str],
    resume: bool = False,
    workers: Workers = SINGLE_PROCESS,
    sets: Callable[[Array], NDArray[np.bool_]] | None = None,
) -> int:
    """Write one Parquet file for each lane: row number, most probable label, probability of each class, and `sets`.

    A file gets its name only when it is complete. Distributed workers share the lanes.

    Returns:
        How many rows this worker has predicted.
    """
    path, total = Path(folder), 0
    path.mkdir(parents=True, exist_ok=True)
    done = {found.name for found in path.glob("part-*.parquet")}
    if done and not resume:
        raise ValueError(f"The folder {folder} must not hold predictions, got {min(done)}; "
                         "give another folder, or resume=True to write the missing parts")  # fmt: skip
    for lane in workers.keepalive(own_lanes(source.lanes, workers)):
        tables = (
            prediction_table(classes, log_proba(block.X), {ROW: block.rows}, {}, sets) for block in source.blocks(lane)
        )
        name = f"part-{lane:05d}.parquet"
        if name not in done and (first := next(tables, None)) is not None:
            total += write_tables(path / name, chain([first], tables))
    return total


def probability_names(classes: NDArray[Any]) -> list[str]:
    """Return the column names of the class probabilities."""
    return [f"{PROBABILITY}{label}" for label in classes.tolist()]


def set_names(classes: NDArray[Any]) -> list[str]:
    """Return the column names of prediction sets."""
    return [f"{SET}{label}" for label in classes.tolist()]


def prediction_table(
    classes: NDArray[Any],
    log_p: Array,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    sets: Callable[[Array], NDArray[np.bool_]] | None = None,
) -> Any:
    """Return an Arrow table of labels, probabilities and prediction sets, with other columns before and after them."""
    pa = arrow()
    label_type = pa.array(classes.tolist()).type  # not guessed from the labels of this part
    columns = {LABEL: pa.array(classes[log_p.argmax(1)].tolist(), label_type)}
    columns |= dict(zip(probability_names(classes), np.exp(log_p).T, strict=True))
    columns |= {} if sets is None else dict(zip(set_names(classes), sets(log_p).T, strict=True))
    return pa.table({**before, **columns, **after})


def write_tables(out: Path | str, tables: Iterator[Any]) -> int:
    """Write Arrow tables of the same columns to one file; return how many rows were written.

    Args:
        out: a Parquet or CSV file, by its ending, or "-" for CSV on stdout. A file is replaced only when the new one is
            complete.
        tables: at least one.
    """
    first, rows = next(tables), 0
    with ExitStack() as stack:
        is_csv = out == STDOUT or Path(out).suffix == ".csv"
        kind = arrow("pyarrow.csv").CSVWriter if is_csv else arrow("pyarrow.parquet").ParquetWriter
        file = sys.stdout.buffer if out == STDOUT else stack.enter_context(atomic_write(Path(out)))
        writer = stack.enter_context(kind(file, first.schema))
        for table in chain([first], tables):
            writer.write_table(table)
            rows += table.num_rows
    return int(rows)
