"""How many test rows of the authors' splits the choice of the defaults has used.

`python -m experiments.defaults.overlap` writes the table into the README beside it. It needs the data folder.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.datasets import Dataset, load
from experiments.common import markdown
from experiments.defaults.run import WAVEFORM, folds_of, parts
from experiments.experiment import FOLDER, Config, between_marks, read_config

HEADER = ["set", "rows", "training rows of another split", "used by the choice", "used for validation"]


class Shares(NamedTuple):
    """Shares of the test rows of a split, each a mean over the splits.

    Attributes:
        elsewhere: training rows of at least one other split.
        used: rows of at least one fold of the choice, for training or validation.
        scored: validation rows of at least one fold.
    """

    elsewhere: float
    used: float
    scored: float


def shares(data: Dataset, folds: int) -> Shares:
    """Compare the test rows with the training rows of the other splits and with the first `folds` folds."""
    train, test = zip(*data.splits, strict=True)
    used = train[:folds]
    scored = [rows[parts(len(rows), i)[1]] for i, rows in enumerate(used)]
    places = [((*train[:i], *train[i + 1 :]), used, scored) for i in range(len(test))]
    found = [
        [np.isin(rows, np.hstack([[], *place])).mean() for place in of] for rows, of in zip(test, places, strict=True)
    ]
    return Shares(*np.mean(found, axis=0).tolist())


def table(config: Config) -> str:
    """Return the shares of every set. Waveform's folds are new draws, so the choice has used none of its rows."""
    rows = []
    for name in config["sets"]:
        data = load(name)
        found = shares(data, 0 if name == WAVEFORM else folds_of(config, name))
        rows.append([name, f"{len(data.X):,}", *(f"{share:.0%}" for share in found)])
    return markdown(HEADER, rows) + "\n"


if __name__ == "__main__":
    page = FOLDER / "defaults" / "README.md"
    page.write_text(between_marks(page.read_text(), "overlap", table(read_config(page.parent, smoke=False))))
