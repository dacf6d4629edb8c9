"""Tables of thousands of rows: our defaults beside 100 inducing points and other models."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.records import Record
from experiments.common import Split, grouped, markdown
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.tables.run import CATBOOST, FEWER, NAMES, OURS, draw_ratios, score_fit, table_split

AIRLINE = "airline_2008_jan_apr.parquet"


def jobs(config: Config) -> list[Job]:
    """List a fit for each table and model. Only CatBoost has a time limit."""
    sizes = {name: config[name] for name in ("test_rows", "split")}
    train_rows = {table: config.get("rows_of", {}).get(table, config["train_rows"]) for table in config["tables"]}
    return [
        {"table": table, "model": model, "seed": 0, "train_rows": train_rows[table], **sizes,
         "max_seconds": config["max_seconds"] if model == CATBOOST else None}
        for table, model in product(config["tables"], config["models"])
    ]  # fmt: skip


def cost(job: Job) -> float:
    """Estimate the cost: our fits and those of CatBoost take tens of seconds, the others much less."""
    return 10.0 if job["model"] in (OURS, FEWER, CATBOOST) else 1.0


def run(job: Job) -> Record:
    """Fit the training rows, and score the others."""
    return score_fit(job, rows_of(job["table"], job["split"], job["train_rows"], job["test_rows"]))


def rows_of(table: str, seed: int, train_rows: int, test_rows: int) -> Split:
    """Return training and test rows of a table, drawn with this seed."""
    import pandas as pd

    from cavity.datasets import make_waveform

    k, n = train_rows, train_rows + test_rows
    if table == "waveform":  # drawn
        X, y = make_waveform(n, seed)
        frame = pd.DataFrame(X)
    elif table.startswith("airline"):
        drawn = pd.read_parquet(Path(os.environ.get("CAVITY_DATA", ".")) / AIRLINE).sample(n, random_state=seed)
        frame, y = drawn.drop(columns=["label", "age_built"], errors="ignore"), drawn["label"].to_numpy()
    else:
        return table_split(table, seed, k, test_rows)
    return frame.iloc[:k], y[:k], frame.iloc[k:], y[k:]


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Show NLL, error and seconds; compare the models on the tables that have all of their fits."""
    models, found = config["models"], grouped(records, "table", "model")
    done = [t for t in config["tables"] if all((t, m) in found for m in models)]
    text = [f"{len(done)} of {len(config['tables'])} tables have all of their fits."]
    if not done:
        return Summary(text[0], [], {})
    for title, score, digits in (("NLL of the test rows", "nll", 4), ("Error", "error", 4), ("Seconds", "seconds", 1)):
        rows = [[t, *(f"{found[t, m][0][score]:.{digits}f}" for m in models)] for t in done]
        text += [f"### {title}", markdown(["table", *(NAMES[m] for m in models)], rows)]

    def ratio(model: str, to: str) -> float:
        return float(np.exp(np.mean([np.log(found[t, model][0]["nll"] / found[t, to][0]["nll"]) for t in done])))

    ratios = {m: ratio(m, config["reference"]) for m in models}
    text.append(
        f"Geometric mean of the NLL relative to {NAMES[config['reference']]}: "
        + ", ".join(f"{NAMES[m]} {value:.3f}" for m, value in ratios.items())
        + "."
    )
    fewer, best = ratio(OURS, FEWER), min((m for m in models if m != OURS), key=lambda m: ratios[m])
    verdicts = [
        Verdict("our defaults have a lower NLL than 100 inducing points (geometric mean)", fewer < 1.0,
                f"ratio {fewer:.3f}", is_ours=True),
        Verdict("their NLL is the lowest of all models (geometric mean)", ratios[OURS] <= ratios[best],
                f"{ratios[OURS]:.3f}, {NAMES[best]} {ratios[best]:.3f}", is_ours=True),
    ]  # fmt: skip
    nll = {key: group[0]["nll"] for key, group in found.items() if key[0] in done}
    return Summary("\n\n".join(text), verdicts, {"medium": draw_ratios(done, nll, models, config["reference"])})
