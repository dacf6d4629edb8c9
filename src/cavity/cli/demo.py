"""`cavity demo`: handwritten digits, classified with calibrated probabilities, beside two baselines."""

from __future__ import annotations

import time
from pathlib import Path

import click
import numpy as np

SHOWN = 5
SIDE = 8  # pixels
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option("--seed", default=0, show_default=True, help="Random seed of the split and of every model.")
@click.option("--out", default="demo", show_default=True, type=FOLDER, help="Folder for the report and the model.")
@click.option("--files", type=FOLDER, help="Only write the rows to this folder: digits-train.csv, digits-test.csv.")
def demo(seed: int, out: Path, files: Path | None) -> None:
    """Classify handwritten digits, compare with two baselines, and write a report.

    Example: cavity demo --seed 1, or cavity demo --files . for rows to try the other commands on
    """
    from sklearn.model_selection import train_test_split

    from cavity.datasets import load

    digits = load("digits")
    X_train, X_test, y_train, y_test = train_test_split(
        digits.X, digits.y, test_size=0.25, stratify=digits.y, random_state=seed
    )
    if files is not None:  # tables that the other commands read
        files.mkdir(parents=True, exist_ok=True)
        names = [f"pixel_{row}_{column}" for row in range(SIDE) for column in range(SIDE)]
        for name, X, y in (("train", X_train, y_train), ("test", X_test, y_test)):
            path = files / f"digits-{name}.csv"
            np.savetxt(path, np.column_stack([X, y]), "%g", ",", header=",".join([*names, "digit"]), comments="")
            click.echo(f"{path}: {len(y)} images, 64 pixels each, and the column digit")
        return

    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from cavity.classifier import GPClassifier
    from cavity.metrics import scores
    from cavity.report import Report, examine
    from cavity.report.text import images, table

    click.echo(f"digits: {len(X_train)} images to learn from, {len(X_test)} to test on, 10 classes\n")
    clf = GPClassifier(random_state=seed, verbose=1)
    models = {
        "cavity": clf,
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "random forest": RandomForestClassifier(random_state=seed),
    }
    rows = []
    for name, model in models.items():
        started = time.perf_counter()
        model.fit(X_train, y_train)
        seconds = time.perf_counter() - started
        with np.errstate(divide="ignore"):
            s = scores(y_test, model.predict_log_proba(X_test), model.classes_)
        nll = f"{s.nll:.3f}" if np.isfinite(s.nll) else "inf"
        rows.append([name, f"{100 * s.error:.1f} %", nll, f"{s.brier:.3f}", f"{s.ece:.3f}", f"{seconds:.1f} s"])
    click.echo("\n" + table(["", "error", "NLL", "Brier", "calibration error", "fit"], rows))
    click.echo("\nNLL, Brier score and calibration error measure the probabilities; lower is better.")

    click.echo("\nThe test images that cavity is most uncertain about:\n")
    shown, captions = np.argsort(clf.uncertainty(X_test).total)[::-1][:SHOWN], []
    for label, p in zip(y_test[shown], clf.predict_proba(X_test[shown]), strict=True):
        likely = [f"{k}: {p[k]:.2f}" for k in np.argsort(p)[::-1][:2]]
        captions.append(["", *likely, f"(true label: {label})"])
    click.echo(images(X_test[shown].reshape(-1, SIDE, SIDE), captions))

    out.mkdir(parents=True, exist_ok=True)
    clf.save(out / "digits.cavity")
    training, title = (X_train, y_train), "Handwritten digits"
    Report(examine(clf, X_test, y_test, train=training, title=title, is_command_line=True)).save(out / "report.html")
    click.echo(f"\nOpen {out / 'report.html'}, a report on the model, in a browser.")
    click.echo(f"Load the model with cavity.load({str(out / 'digits.cavity')!r}).")
