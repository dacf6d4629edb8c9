"""`cavity demo`: handwritten digits, classified with calibrated probabilities, beside two baselines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity.classifier import GPClassifier
from cavity.datasets import load
from cavity.metrics import scores
from cavity.report.text import images, table

SHOWN = 5
SIDE = 8  # pixels
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option("--seed", default=0, show_default=True, help="Of the split and of every model.")
@click.option("--out", default="demo", show_default=True, type=FOLDER, help="Where the report and the model go.")
@click.option("--files", type=FOLDER, help="Only write the rows into this folder: digits-train.csv, digits-test.csv.")
def demo(seed: int, out: Path, files: Path | None) -> None:
    """Fit scikit-learn's digits with SEP and EP, compare with two baselines, write a report.

    Example: cavity demo --seed 1, or cavity demo --files . for rows to try the other commands on
    """
    digits = load("digits")
    X_train, X_test, y_train, y_test = split = train_test_split(
        digits.X, digits.y, test_size=0.25, stratify=digits.y, random_state=seed
    )
    if files is not None:
        _write_rows(split, files)
        return
    click.echo(f"digits: {len(X_train)} images to learn from, {len(X_test)} to test on, 10 classes\n")
    models = _models(seed)
    rows = []
    for name, model in models.items():
        seconds = _fit(model, X_train, y_train)
        with np.errstate(divide="ignore"):
            s = scores(y_test, model.predict_log_proba(X_test), model.classes_)
        nll = f"{s.nll:.3f}" if np.isfinite(s.nll) else "inf"
        rows.append([name, f"{100 * s.error:.1f} %", nll, f"{s.brier:.3f}", f"{s.ece:.3f}", f"{seconds:.1f} s"])
    click.echo("\n" + table(["", "error", "NLL", "Brier", "calibration error", "fit"], rows))
    click.echo("\nNLL, Brier and calibration error judge the probabilities; lower is better.")
    _show_least_sure(models["cavity SEP"], X_test, y_test)
    _leave(models["cavity EP"], split, out)


def _write_rows(split: Any, folder: Path) -> None:
    """As tables that the other commands read."""
    X_train, X_test, y_train, y_test = split
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"pixel_{row}_{column}" for row in range(SIDE) for column in range(SIDE)]
    for name, X, y in (("train", X_train, y_train), ("test", X_test, y_test)):
        path = folder / f"digits-{name}.csv"
        np.savetxt(path, np.column_stack([X, y]), "%g", ",", header=",".join([*names, "digit"]), comments="")
        click.echo(f"{path}: {len(y)} images, 64 pixels each, and the column digit")


def _leave(model: GPClassifier, split: Any, folder: Path) -> None:
    """The model and a report of it, to keep."""
    X_train, X_test, y_train, y_test = split
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "digits.cavity")
    report = model.report(X_test, y_test, train=(X_train, y_train), title="Handwritten digits")
    report.save(folder / "report.html")
    click.echo(f"\n{folder / 'report.html'} says how far to trust cavity EP; open it in a browser.")
    click.echo(f"{folder / 'digits.cavity'} is the model: cavity.load reads it.")


def _models(seed: int) -> dict[str, Any]:
    return {
        "cavity SEP": GPClassifier("sep", random_state=seed, verbose=1),
        "cavity EP": GPClassifier("ep", random_state=seed, verbose=1),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "random forest": RandomForestClassifier(random_state=seed),
    }


def _fit(model: Any, X: NDArray[np.float64], y: NDArray[Any]) -> float:
    started = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - started


def _show_least_sure(model: GPClassifier, X: NDArray[np.float64], y: NDArray[Any]) -> None:
    unsure = model.uncertainty(X)
    rows = np.argsort(unsure.total)[::-1][:SHOWN]
    p = model.predict_proba(X[rows])
    click.echo("\nThe test images that cavity is least sure of:\n")
    click.echo(images(X[rows].reshape(-1, SIDE, SIDE), [_caption(*c) for c in zip(y[rows], p, strict=True)]))


def _caption(label: Any, p: NDArray[np.float64]) -> list[str]:
    first, second = np.argsort(p)[::-1][:2]
    return ["", f"{first}: {p[first]:.2f}", f"{second}: {p[second]:.2f}", f"(it is a {label})"]
