"""A model from its file, and the rows it is to be judged by."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.classifier import load
from cavity.cli.files import Data, columns_of, is_large, schema
from cavity.cli.holdout import known_again
from cavity.cli.labels import places
from cavity.cli.output import Output, plural
from cavity.cli.tables import Rows, frame, model_columns, read_rows


class Loaded(NamedTuple):
    """A fitted classifier, the names of its features, and the column that its labels came from, where it has any."""

    model: Any
    names: list[str] | None
    target: str | None

    @property
    def metrics(self) -> dict[str, Any]:
        """What was kept with the model."""
        return self.model.metrics_ or {}


class Judged(NamedTuple):
    """Rows to judge a model by.

    Attributes:
        rows: those to look at.
        place: of each label among the classes.
        learned: the rows that the model has learned from, where they are known.
        which: "new", "held out" or "learned from".
    """

    rows: Rows
    place: NDArray[np.int64]
    learned: Rows | None
    which: str


def load_model(path: Path) -> Loaded:
    """The model in a file."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; `cavity fit` makes a model")
    model = load(path)
    found = getattr(model, "feature_names_in_", None)
    target = (model.metrics_ or {}).get("target")
    return Loaded(model, None if found is None else [str(name) for name in found], target)


def target_of(loaded: Loaded, given: str | None) -> str:
    """The column of labels: the one named, else the one that the model has learned from."""
    target = given or loaded.target
    if target is None:
        raise ValueError("the model does not say which column holds the labels; name it with --target")
    return target


def read_labeled(data: Data, loaded: Loaded, target: str, drop_missing: bool) -> Rows:
    """All rows with the features of the model and their labels."""
    columns = model_columns(data, schema(data), loaded.names, loaded.model.n_features_in_, target)
    columns = columns._replace(target=target)
    return read_rows(data, columns_of(data, columns.names), columns, drop_missing)


def judged(data: Data, loaded: Loaded, target: str, drop_missing: bool, output: Output) -> Judged:
    """The rows to judge by: of the file that the model was made from just those that were held out."""
    rows = read_labeled(data, loaded, target, drop_missing)
    note_dropped(rows.dropped, output)
    assert rows.y is not None
    place = places(rows.y, loaded.model.classes_, lambda i: f"{data.name}, row {rows.numbers[i]}")
    held = known_again(rows, loaded.metrics)
    if held is None:
        return Judged(rows, place, None, "new")
    if not held.any():
        note_learned(data, output)
        return Judged(rows, place, None, "learned from")
    output.note(f"{data.name}: the model was made from this file; only the {plural(int(held.sum()), 'row')} "
                "that it has not learned from are used")  # fmt: skip
    return Judged(rows.take(held), place[held], rows.take(~held), "held out")


def note_learned(data: Data, output: Output) -> None:
    """Say that rows flatter the model."""
    output.note(f"{data.name}: the model has learned from these very rows, so it looks better than it is; "
                "give it others, or fit with --holdout")  # fmt: skip


def note_dropped(count: int, output: Output) -> None:
    """Say how many rows were left out for their gaps."""
    if count:
        output.note(f"{plural(count, 'row')} with missing values left out")


def labeled(rows: Rows, loaded: Loaded, place: NDArray[np.int64]) -> tuple[Any, NDArray[Any]]:
    """Features and labels in the form that the model takes."""
    return frame(rows.X, loaded.names), loaded.model.classes_[place]


def refuse_large(data: Data) -> None:
    """Refuse files that would not fit in memory."""
    if is_large(data):
        raise ValueError(f"{data.name} is too large for the memory of this machine; give a sample of its rows")
