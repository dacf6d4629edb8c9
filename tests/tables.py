"""A table as it comes, with categories, a date, gaps and an identifier, and files of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

KINDS = ("number", "category", "category", "category", "date", "left out")


def mixed_table(n_rows: int, seed: int = 0, cities: int = 80) -> pd.DataFrame:
    """Rows whose label depends on a number, two categories and the season; a tenth of the cells is missing."""
    rng = np.random.default_rng(seed)
    size, color, city = rng.standard_normal(n_rows), rng.integers(0, 4, n_rows), rng.integers(0, cities, n_rows)
    day = rng.integers(0, 1000, n_rows)
    flag = rng.random(n_rows) < 0.5
    score = size + 1.5 * (color == 2) + 1.5 * np.sin(1.7 * city) + np.cos(2 * np.pi * day / 365.25) * flag
    label = np.array(["low", "mid", "top"])[np.digitize(score + 0.3 * rng.standard_normal(n_rows), [-0.5, 1.0])]
    found = pd.DataFrame(
        {
            "size": size,
            "color": np.array(["red", "green", "blue", 'dark, "grey"'], dtype=object)[color],
            "city": np.array([f"city {k}" for k in range(cities)], dtype=object)[city],
            "flag": pd.array(flag, dtype="boolean"),
            "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(day, unit="D"),
        }
    )
    found = found.mask(rng.random(found.shape) < 0.1)
    return found.assign(id=[f"row {k}" for k in range(n_rows)], label=label)


def write_parquet(table: pd.DataFrame, folder: Path, parts: int = 3) -> Path:
    """Files of several row groups each."""
    folder.mkdir(parents=True)
    for k, places in enumerate(np.array_split(np.arange(len(table)), parts)):
        part = pa.Table.from_pandas(table.iloc[places], preserve_index=False)
        pq.write_table(part, folder / f"part-{k}.parquet", row_group_size=50)
    return folder


def write_csv(table: pd.DataFrame, folder: Path, parts: int = 3) -> Path:
    """Files that are lanes."""
    folder.mkdir(parents=True)
    for k, places in enumerate(np.array_split(np.arange(len(table)), parts)):
        part = pa.Table.from_pandas(table.iloc[places], preserve_index=False)
        pyarrow.csv.write_csv(part, folder / f"part-{k}.csv")
    return folder
