"""Tables with categories and gaps: raw frames against a manual encoding, and against CatBoost."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import new_figure, plain
from benchmarks.records import Record
from cavity import GPClassifier
from experiments.common import Split, markdown, scored_fit
from experiments.experiment import Config, Job, Summary, Verdict

Array = NDArray[np.float64]

TARGET, MADE_UP = "target", "made up"
RIVAL = "catboost"
FRAME, ONE_HOT = "frame", "one-hot"
FILLED, LEVEL, WITHOUT = "median only", "missing as a level", "without the category"
MANY = {
    "300 random levels": 300,
    "300 levels of 5 kinds": 5,
}  # made-up tables, and their different effects
MANY_ROWS, N_LEVELS = 4000, 300
TICKS = (0.25, 0.5, 1.0, 2.0, 4.0)


def jobs(config: Config) -> list[Job]:
    """List a fit for each table, split and encoding."""
    cells = [
        *product(config["tables"], config["splits"], config["encodings"]),
        *product(config["gaps_in_numbers"], config["splits"], [FILLED]),
        *product(config["gaps_in_categories"], config["splits"], [LEVEL]),
        *product(config["many_levels"], config["splits"], [FRAME, ONE_HOT, WITHOUT]),
    ]
    sizes = {name: config[name] for name in ("train_rows", "test_rows")}
    return [{"table": table, "split": k, "encoding": how, "seed": 0, **sizes} for table, k, how in cells]


def cost(job: Job) -> float:
    """Estimate the cost: much the same for all."""
    return 1.0


def run(job: Job) -> Record:
    """Fit the training rows of a split, and score the others."""
    X, y, X_test, y_test = table_split(job["table"], job["split"], job["train_rows"], job["test_rows"])
    numbers = X.select_dtypes("number").columns
    texts = [name for name in X if name not in numbers]
    if job["encoding"] == ONE_HOT:
        X, X_test = _one_hot(X, X_test, list(numbers), texts)
    elif job["encoding"] == FILLED:
        X, X_test = (part.fillna(X[numbers].median()) for part in (X, X_test))
    elif job["encoding"] == LEVEL:
        X, X_test = (part.fillna(dict.fromkeys(texts, "(missing)")) for part in (X, X_test))
    elif job["encoding"] == WITHOUT:
        X, X_test = X[numbers], X_test[numbers]
    model = GPClassifier(random_state=job["seed"], device="cpu")
    return {**scored_fit(model, (X, y, X_test, y_test)), **_rival(job["table"], job["split"])}


def table_split(table: str, number: int, train_rows: int, test_rows: int) -> Split:
    """Return the rows of a split, stratified: at most these many, and at most two thirds to train on."""
    from sklearn.model_selection import train_test_split

    frame = _load(table)
    y = frame.pop(TARGET).astype(str).to_numpy()
    n = len(frame)
    k = min(train_rows, round(2 * n / 3))
    sizes = {"train_size": k, "test_size": min(test_rows, n - k)}
    train, test = train_test_split(np.arange(n), **sizes, stratify=y, random_state=number)
    return frame.iloc[train], y[train], frame.iloc[test], y[test]


def _load(table: str) -> Any:
    """Read a table; the made-up ones need no data folder."""
    import pandas as pd

    if table in MANY:
        rng = np.random.default_rng(0)
        level, X = rng.integers(0, N_LEVELS, MANY_ROWS), rng.normal(size=(MANY_ROWS, 3))
        effect = 1.5 * rng.normal(size=(MANY[table], 2))[rng.integers(0, MANY[table], N_LEVELS)]
        f = np.column_stack([np.zeros(MANY_ROWS), X[:, 0], np.sin(2.0 * X[:, 1])])
        f[:, 1:] += effect[level]
        y = (f + rng.gumbel(size=f.shape)).argmax(1)
        return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "shop": level.astype(str), TARGET: y})
    if table == MADE_UP:
        rng = np.random.default_rng(0)
        color, age = rng.choice(["red", "green", "blue"], 120), rng.normal(size=120)
        target = np.where((color == "red") ^ (age > 0.5), "yes", "no")
        age[::9] = np.nan
        return pd.DataFrame({"color": color, "age": age, TARGET: target})
    path = _folder() / f"{table}.parquet"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Set CAVITY_DATA to a folder with tables/{table}.parquet.")
    return pd.read_parquet(path)


def _folder() -> Path:
    return Path(os.environ.get("CAVITY_DATA", ".")) / "tables"


def _one_hot(
    X: Any, X_test: Any, numbers: list[str], texts: list[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Encode by hand: indicators of all levels, the median and an indicator for gaps in numbers."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    encoder = ColumnTransformer(
        [
            ("numbers", SimpleImputer(strategy="median", add_indicator=True), numbers),
            ("texts", OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts),
        ]
    )
    return encoder.fit_transform(X), encoder.transform(X_test)


def _rival(table: str, split: int) -> Record:
    """Return CatBoost's scores from the file beside the tables."""
    import pandas as pd

    path = _folder() / "rivals.csv"
    if table == MADE_UP or not path.exists():
        return {"rival_nll": None, "rival_error": None, "rival_note": ""}
    known = pd.read_csv(path)
    row = known[(known.data_set == table) & (known.split == split) & (known.model == RIVAL)]
    if row.empty:
        return {"rival_nll": None, "rival_error": None, "rival_note": ""}
    note = row.note.iloc[0]
    return {
        "rival_nll": float(row.nll.iloc[0]),
        "rival_error": float(row.error.iloc[0]),
        "rival_note": note if isinstance(note, str) else "",
    }


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Show the mean NLL over splits of each table, and the geometric means of the ratios."""
    names = sorted({r["table"] for r in records} - set(MANY))
    nll = {name: {how: _mean(records, name, how) for how in (FRAME, ONE_HOT)} for name in names}
    rival = {name: _rival_mean(records, name) for name in names}
    cut = {r["table"] for r in records if r["rival_note"]}
    rows = []
    for name in names:
        seconds = [r["cpu_seconds"] for r in records if (r["table"], r["encoding"]) == (name, FRAME)]
        figures = ["" if x is None else f"{x:.4f}" for x in (nll[name][FRAME], nll[name][ONE_HOT], rival[name])]
        time = f"{np.mean(seconds):.1f}" if seconds else ""
        rows.append([name, *figures[:2], figures[2] + (" (cut short)" if name in cut else ""), time])
    text = "NLL on test rows, the mean over the splits, and processor seconds of the fit of the frame.\n\n" + markdown(
        ["table", "frame", "one-hot by hand", "CatBoost", "seconds"], rows
    )
    others = [
        [table, how, f"{_mean(records, table, FRAME):.4f}", f"{_mean(records, table, how):.4f}"]
        for table, how in sorted({(r["table"], r["encoding"]) for r in records})
        if how not in (FRAME, ONE_HOT) or (how == ONE_HOT and table in MANY)
    ]
    if others:
        text += "\n\nOther encodings, and categories of many levels.\n\n" + markdown(
            ["table", "encoding", "NLL of the frame", "NLL of this encoding"], others
        )
    verdicts, limit = [], config["limit"]
    if (ratio := _geometric(nll, {name: nll[name][ONE_HOT] for name in names})) is not None:
        claim = "frames as they come are at least as good as a careful one-hot encoding (geometric mean of the NLL)"
        verdicts.append(Verdict(claim, ratio <= 1.0, f"ratio {ratio:.3f}", is_ours=True))
    if (ratio := _geometric(nll, rival)) is not None:
        whole = _geometric(nll, {name: value for name, value in rival.items() if name not in cut})
        more = f"; {whole:.3f} without the {len(cut)} tables where CatBoost was cut short" if cut and whole else ""
        claim = f"their NLL is at most {limit} of CatBoost's (geometric mean)"
        verdicts.append(Verdict(claim, ratio <= limit, f"ratio {ratio:.3f}{more}", is_ours=True))
    return Summary(text, verdicts, {"tables": _draw(names, nll, rival)})


def _mean(records: list[Record], table: str, how: str) -> float | None:
    found = [r["nll"] for r in records if (r["table"], r["encoding"]) == (table, how)]
    return float(np.mean(found)) if found else None


def _rival_mean(records: list[Record], table: str) -> float | None:
    found = {r["split"]: r["rival_nll"] for r in records if r["table"] == table and r["rival_nll"] is not None}
    return float(np.mean(list(found.values()))) if found else None


def _geometric(nll: dict[str, dict[str, float | None]], other: dict[str, float | None]) -> float | None:
    """Return the geometric mean of the ratios of the frame's NLL to another, over the tables that have both."""
    pairs = [(nll[name][FRAME], value) for name, value in other.items()]
    logs = [np.log(a / b) for a, b in pairs if a is not None and b is not None]
    return float(np.exp(np.mean(logs))) if logs else None


def _draw(names: list[str], nll: dict[str, dict[str, float | None]], rival: dict[str, float | None]) -> Any:
    """Draw the ratios to CatBoost, sorted."""
    ratios = {name: nll[name][FRAME] / rival[name] for name in names if nll[name][FRAME] and rival[name]}  # type: ignore[operator]
    order = sorted(ratios, key=lambda name: ratios[name])
    figure = new_figure(6.0, 0.24 * max(len(order), 4) + 0.8)
    axes = figure.subplots()
    plain(axes)
    for how, marker in ((ONE_HOT, "o"), (FRAME, "s")):
        points = [(nll[name][how], rival[name], i) for i, name in enumerate(order)]
        x = [a / b for a, b, _ in points if a and b]
        face = "C0" if how == FRAME else "white"
        axes.plot(x, [i for a, b, i in points if a and b], marker, color="C0", markerfacecolor=face, label=how)
    axes.axvline(1.0, color="0.7", linewidth=0.8)
    axes.set(xscale="log", xlabel="NLL relative to CatBoost", yticks=range(len(order)), yticklabels=order)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)
    return figure
