"""`cavity evaluate`: how good a model is on labeled rows."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from cavity.cli.files import Data, find, is_large, schema, source
from cavity.cli.holdout import files_digest
from cavity.cli.labels import places
from cavity.cli.models import Loaded, judged, load_model, note_learned, target_of
from cavity.cli.options import DATA, DROP_MISSING, JSON, MODEL, TARGET
from cavity.cli.output import Output, is_first, plural
from cavity.cli.progress import through_rows
from cavity.cli.scoring import Tally, class_table, in_words, score
from cavity.cli.tables import frame, model_columns


@click.command()
@MODEL
@DATA
@TARGET
@DROP_MISSING
@JSON
def evaluate(model: Path, data: tuple[str, ...], target: str | None, drop_missing: bool, as_json: bool) -> None:
    """Score MODEL on the labeled rows of DATA (CSV or Parquet).

    Of the file that the model was made from, only the rows that were held out are used.

    \b
    Example:
      cavity evaluate digits.cavity digits-test.csv
    """
    if not is_first():
        return
    output, loaded, found = Output(as_json), load_model(model), find(data)
    tally, which = _scored(found, loaded, target_of(loaded, target), drop_missing, output)
    heading = {"held out": " that were held out", "learned from": " that it has learned from"}.get(which, "")
    output.tell(f"{model} on {plural(tally.n_rows, 'row')} of {found.name}{heading}:\n")
    output.tell(in_words(tally) + "\n\n" + class_table(tally))
    output.result(
        model=model, data=found.name, rows=tally.n_rows, which=which,
        scores=tally.scores()._asdict(), classes=tally.by_class(),
    )  # fmt: skip


def _scored(data: Data, loaded: Loaded, target: str, drop_missing: bool, output: Output) -> tuple[Tally, str]:
    if is_large(data) and not drop_missing:
        output.note(f"{data.name} is large: it is read from disk, a part at a time")
        return _streamed(data, loaded, target, output)
    found = judged(data, loaded, target, drop_missing, output)
    return score(loaded.model, found.rows.X, found.place, loaded.names), found.which


def _streamed(data: Data, loaded: Loaded, target: str, output: Output) -> tuple[Tally, str]:
    columns = model_columns(data, schema(data), loaded.names, loaded.model.n_features_in_, target)
    rows, tally = source(data, target, columns.features), Tally(loaded.model.classes_)
    is_known = files_digest(rows) == loaded.metrics.get("holdout", {}).get("digest")
    if is_known:
        note_learned(data, output)
    with through_rows("evaluate", data, output.quiet) as done:
        for block in (block for lane in range(rows.lanes) for block in rows.blocks(lane)):
            log_p, y = loaded.model.predict_log_proba(frame(block.X, loaded.names)), np.asarray(block.y)
            tally.add(places(y, tally.classes, block.where), log_p)
            done(len(y))
    return tally, "learned from" if is_known else "new"
