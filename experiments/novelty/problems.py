"""Rows that are unlike the training rows: of a class left out, of another table in the guise of this one, and mixed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.tables.run import TARGET, _load

SHARE = 2 / 3  # of the rows, at most, that are training rows
BINS = 8  # of a number of another table that stands in for a category


class Problem(NamedTuple):
    """Training rows of the known classes, further rows of them, and rows that are unlike them by kind."""

    X: pd.DataFrame
    y: NDArray[Any]
    known: pd.DataFrame
    y_known: NDArray[Any]
    novel: dict[str, pd.DataFrame]


def load_rows(table: str) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Return the rows and labels of a table; those named "sklearn …" come with scikit-learn."""
    if table.startswith("sklearn "):
        from sklearn import datasets

        data = getattr(datasets, f"load_{table.removeprefix('sklearn ')}")(as_frame=True)
        return data.data, data.target.astype(str).to_numpy()
    frame = _load(table)
    return frame, frame.pop(TARGET).astype(str).to_numpy()


def most_frequent(y: NDArray[Any], rank: int) -> str:
    """Return the class with this rank by frequency, from 0."""
    labels, counts = np.unique(y, return_counts=True)
    return str(labels[np.lexsort((labels, -counts))[rank]])


def make_problem(table: str, left_out: int | None, other: str, train_rows: int, test_rows: int, seed: int) -> Problem:
    """Split a table, and make rows that are unlike the training rows.

    Args:
        table: its name.
        left_out: the rank by frequency of the class whose rows are no training rows; None for none.
        other: the name of another table.
        train_rows, test_rows: at most these many, and at most two thirds of the rows to train on.
        seed: of the split and of all else.
    """
    from sklearn.model_selection import train_test_split

    X, y = load_rows(table)
    unknown = None if left_out is None else most_frequent(y, left_out)
    rng, inside = np.random.default_rng(seed), np.flatnonzero(y != unknown)
    n = len(inside)
    n_train = min(train_rows, round(n * SHARE))
    sizes = {"train_size": n_train, "test_size": min(test_rows, n - n_train)}
    train, test = train_test_split(inside, **sizes, stratify=y[inside], random_state=seed)
    known = X.iloc[test].reset_index(drop=True)
    novel = {}
    if unknown is not None:
        outside = np.flatnonzero(y == unknown)
        novel["class"] = X.iloc[rng.permutation(outside)[:test_rows]].reset_index(drop=True)
    novel["mixed"] = pd.DataFrame({name: known[name].to_numpy()[rng.permutation(len(known))] for name in known})
    strange = load_rows(other)[0]
    novel["other"] = disguised(strange.iloc[rng.permutation(len(strange))[: len(known)]], known, rng)
    return Problem(X.iloc[train].reset_index(drop=True), y[train], known, y[test], novel)


def disguised(other: pd.DataFrame, like: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return rows of another table in the guise of this one: its columns have similar marginal distributions.

    Each column takes the values of a random one of the other table, a number where there is one for a number. Numbers
    get the mean and the standard deviation of the column that they replace, rounded as this is; categories of the k-th
    frequency become the level of the k-th frequency there.
    """
    other, found = other.reset_index(drop=True), {}
    numbers = list(other.select_dtypes("number").columns)
    for name in like:
        own = like[name]
        is_number = pd.api.types.is_numeric_dtype(own)
        source = other[rng.choice(numbers if is_number and numbers else list(other.columns))]
        if is_number:
            codes = source if pd.api.types.is_numeric_dtype(source) else pd.Series(_ranked(source), dtype=float)
            spread = codes.std(ddof=0)
            x = own.mean() + (codes - codes.mean()) * (own.std(ddof=0) / spread if spread > 0 else 0.0)
            found[name] = x.round() if (own.dropna() == own.dropna().round()).all() else x
        else:
            levels = own.dropna().value_counts().index.to_numpy()
            if pd.api.types.is_numeric_dtype(source) and source.nunique() > BINS:
                source = pd.qcut(source.rank(method="first"), BINS).astype(str).where(source.notna())
            codes = _ranked(source)
            values = levels[np.clip(codes, 0, len(levels) - 1)].astype(object)
            values[codes < 0] = None
            found[name] = pd.Series(values, dtype=own.dtype)
    return pd.DataFrame(found)


def _ranked(source: pd.Series) -> NDArray[np.int64]:
    """Return the rank of each cell's level by frequency, from 0; -1 for a gap."""
    ranks = {level: k for k, level in enumerate(source.dropna().value_counts().index)}
    return np.array([ranks.get(cell, -1) for cell in source.tolist()], dtype=np.int64)
