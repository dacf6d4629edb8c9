"""What `cavity fit` does: choose columns, hold rows out, train, score, save."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.classifier import GPClassifier
from cavity.cli.columns import Columns, choose, counters, explained
from cavity.cli.files import Data, columns_of, first_rows, is_large, schema, source
from cavity.cli.holdout import digest, files_digest, held_out, row_keys
from cavity.cli.interrupt import stopping
from cavity.cli.labels import check_labels, places
from cavity.cli.models import note_dropped
from cavity.cli.output import Output, plural
from cavity.cli.scoring import Tally, in_words, plain, score
from cavity.cli.tables import Rows, frame, read_rows
from cavity.data.source import Source
from cavity.runtime.distributed import current_workers
from cavity.training import Event

HOLDOUT = 0.2  # of the rows, where nothing else is asked for
STOPPED = (Event.STOPPED, Event.CALIBRATION_STOPPED)
LAST = 2  # records that a stopped training may end with


class Asked(NamedTuple):
    """What is asked for, beside the settings of the classifier; `holdout` and `features` may be left open."""

    target: str
    features: list[str] | None
    drop: list[str]
    drop_missing: bool
    holdout: float | None
    seed: int
    resume: bool


class Lesson(NamedTuple):
    """What is learned from, and what is not.

    Attributes:
        given: the arguments of `fit`.
        n_rows: to learn from; None where nobody has counted.
        held: the rows to score by; None where there are none.
        columns: those in use.
        about: what is kept with the model of the rows held out.
        dropped: how many rows were left out for their gaps.
    """

    given: tuple[Any, ...]
    n_rows: int | None
    held: Rows | None
    columns: Columns
    about: dict[str, Any]
    dropped: int = 0


class Learned(NamedTuple):
    """What came of it: the model, the seconds that training took, the scores of the rows held out."""

    model: Any
    seconds: float
    tally: Tally | None

    @property
    def scores(self) -> dict[str, float]:
        """By name; none where no rows were held out."""
        return {} if self.tally is None else self.tally.scores()._asdict()

    @property
    def is_stopped(self) -> bool:
        """Whether training was asked to end."""
        return any(record["event"] in STOPPED for record in self.model.history_[-LAST:])


def learn(data: Data, asked: Asked, params: dict[str, Any], out: Path, output: Output) -> None:
    """Learn from the files, write the model, and say what came of it."""
    lesson = (
        _from_disk(data, asked, output)
        if is_large(data, current_workers().neighbors)
        else _in_memory(data, asked, output)
    )
    began, model = time.perf_counter(), GPClassifier(**params)
    with stopping() as stop:  # until the model is written
        model.fit(*lesson.given, stop=stop, resume=asked.resume)
        learned = Learned(model, time.perf_counter() - began, _scored(model, lesson))
        if output.is_first:
            kept = {"target": asked.target, "data": data.name, "holdout": lesson.about}
            model.save(out, metrics=kept | learned.scores)
    _say(learned, out, output)
    output.result(model=out, data=data.name, target=asked.target, **_facts(learned, lesson))


def _facts(learned: Learned, lesson: Lesson) -> dict[str, Any]:
    """What machines may want to know."""
    model = learned.model
    return {
        "rows": lesson.n_rows or model.training_["rows"],
        "held_out": lesson.about["rows"],
        "dropped_rows": lesson.dropped,
        "features": lesson.columns.features,
        "left_out": lesson.columns.left_out,
        "classes": [plain(label) for label in model.classes_],
        "method": model.method_,
        "epochs": model.n_iter_,
        "seconds": learned.seconds,
        "stopped": learned.is_stopped,
        "log_marginal_likelihood": model.log_marginal_likelihood_,
        "scores": learned.scores or None,
    }


def _in_memory(data: Data, asked: Asked, output: Output) -> Lesson:
    table = columns_of(data, None) if data.is_csv else None
    columns = choose(
        schema(data) if table is None else table.schema, data.name, asked.target, asked.features, asked.drop
    )
    first = first_rows(data, list(columns.left_out)) if table is None else table
    columns = columns._replace(left_out=explained(columns, first))
    table = columns_of(data, columns.names) if table is None else table
    _note_left_out(columns, output)
    rows = read_rows(data, table, columns, asked.drop_missing)
    note_dropped(rows.dropped, output)
    _note_counters(rows, output)
    return _divided(rows, columns, asked, data, output)


def _divided(rows: Rows, columns: Columns, asked: Asked, data: Data, output: Output) -> Lesson:
    y: NDArray[Any] = np.asarray(rows.y)
    check_labels(y, f"{data.name}: column {asked.target!r}")
    share = HOLDOUT if asked.holdout is None else asked.holdout
    keys = row_keys(rows)
    held = held_out(keys, y, share, asked.seed)
    if share and not held.any():
        output.note("too few rows to hold any out: there will be no scores")
    learned = rows.take(~held)
    _describe(data, len(columns.features), rows, held, asked.target, output)
    about = {"share": share, "seed": asked.seed, "rows": int(held.sum()), "digest": digest(keys)}
    given = frame(learned.X, columns.features), learned.y
    return Lesson(given, len(learned.X), rows.take(held) if held.any() else None, columns, about, rows.dropped)


def _from_disk(data: Data, asked: Asked, output: Output) -> Lesson:
    if asked.drop_missing or asked.holdout:
        raise ValueError(f"{data.name} is too large for memory, so --drop-missing and --holdout cannot be used: "
                         "make files without gaps, and keep some rows in another file to score by")  # fmt: skip
    columns = choose(schema(data), data.name, asked.target, asked.features, asked.drop)
    _note_left_out(columns, output)
    rows: Source = source(data, asked.target, columns.features)
    output.note(f"{data.name} is large: it is read from disk, again and again, and no rows are held out; score the "
                "model by another file with `cavity evaluate`")  # fmt: skip
    about = {"share": 0.0, "seed": asked.seed, "rows": 0, "digest": files_digest(rows)}
    return Lesson((rows,), None, None, columns, about)


def _scored(model: Any, lesson: Lesson) -> Tally | None:
    held = lesson.held
    if held is None or held.y is None:
        return None
    place = places(held.y, model.classes_, lambda i: f"row {held.numbers[i]}")
    return score(model, held.X, place, lesson.columns.features)


def _note_left_out(columns: Columns, output: Output) -> None:
    if columns.left_out:
        what = ", ".join(f"{name} ({held})" for name, held in columns.left_out.items())
        output.note(f"left out: {what}; turn them into numbers if they matter, or --drop them")


def _note_counters(rows: Rows, output: Output) -> None:
    for name in counters(rows.X, rows.features):
        output.note(f"{name!r} only counts the rows; leave it out with --drop {name!r}")


def _describe(data: Data, n_features: int, rows: Rows, held: Any, target: str, output: Output) -> None:
    labels = plural(len(np.unique(np.asarray(rows.y))), "label")
    output.tell(f"{data.name}: {plural(len(rows.X), 'row')}, {plural(n_features, 'feature')}, {labels} in {target!r}")
    if held.any():
        output.tell(f"{plural(int((~held).sum()), 'row')} to learn from, {held.sum():,} held out to score by")


def _say(learned: Learned, out: Path, output: Output) -> None:
    model, tally = learned.model, learned.tally
    stopped = "stopped early, with the best model so far; " if learned.is_stopped else ""
    how = f"{model.method_.upper()}, {plural(model.n_iter_, 'epoch')}, {learned.seconds:.1f} s"
    output.tell(f"{stopped}{out} written: {how}")
    if tally is not None:
        output.tell(f"\nOn the {plural(tally.n_rows, 'row')} held out:\n\n{in_words(tally)}")
